"""List the files of a transaction log in an object store."""

import json
from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from tidemark.store.committers.durable import LAST_CHECKPOINT, LOG
from tidemark.store.committers.object_files import PAGE_FILES, ListedFile, ObjectFolder


class LogListing(NamedTuple):
    """The files of a transaction log, by version.

    Args:
        checkpoints: the files of each checkpoint. Spark can write a checkpoint into several files.
    """

    commits: dict[int, ListedFile]
    checkpoints: dict[int, list[ListedFile]]


def entry_name(version: int) -> str:
    """Return the name of the file of a commit."""
    return f"{version:020}.json"


def checkpoint_name(version: int) -> str:
    """Return the name of a checkpoint that has a single file."""
    return f"{version:020}.checkpoint.parquet"


def list_from(table: ObjectFolder, version: int, *, with_checkpoint: bool = False) -> LogListing:
    """List the files of a transaction log from the commit of a version on.

    Args:
        with_checkpoint: true to list the version's checkpoint, too.
    """
    # This name is just before that of the commit, or of the checkpoint.
    name = f"{version:020}." if with_checkpoint else f"{version:020}.j"
    pages = table.list_after(LOG, name)
    return _read_listing(chain.from_iterable(pages))


def list_log(table: ObjectFolder) -> LogListing:
    """List a transaction log, or the part from the newest checkpoint on if the log is long."""
    page = next(table.list_after(LOG), [])
    if len(page) < PAGE_FILES:
        return _read_listing(page)
    try:
        (content,) = table.read_files([f"{LOG}/{LAST_CHECKPOINT}"])
        start = f"{json.loads(content)['version']:020}"
    except FileNotFoundError:
        start = None
    return _read_listing(chain.from_iterable(table.list_after(LOG, start)))


def _read_listing(files: Iterable[ListedFile]) -> LogListing:
    commits = dict[int, ListedFile]()
    checkpoints = dict[int, list[ListedFile]]()
    for file in files:
        number, _, kind = file.name.partition(".")
        if not number.isdigit():
            continue
        version = int(number)
        if kind == "json":
            commits[version] = file
        elif kind.startswith("checkpoint."):
            checkpoints.setdefault(version, []).append(file)
    return LogListing(commits, checkpoints)
