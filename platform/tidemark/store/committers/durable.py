"""Sync commits on a local disk before later commits depend on them.

delta-rs (1.6.6) writes files and never calls fsync, so the operating system may write two commits
to the disk in either order. After a power cut, the later one may exist without the earlier one. The
commit order across tables matters (event log, timeline, state, published tables, ledger). Each
commit is therefore synced before the next one begins: its data files, its entry in the transaction
log, and their folders. Object stores are durable without this.

A crash before the sync may leave an entry whose data files are truncated. `store.integrity` finds
such entries.
"""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from deltalake import DeltaTable

from tidemark.base.errors import DefinitionError
from tidemark.base.settings import Settings

LOG = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"
"""The file in a transaction log that names its newest checkpoint."""


@cache
def _is_enabled() -> bool:
    """Return whether commits are synced (setting `durable`)."""
    try:
        return Settings().durable
    except DefinitionError:
        return True


def sync_commit(address: str, opened: DeltaTable) -> None:
    """Sync the newest commit of an open table on a local disk."""
    if "://" in address or not _is_enabled():
        return
    version = opened.version()
    entry = Path(address, LOG, f"{version:020}.json")
    # Maintenance may have removed the entry already: a synced checkpoint then replaces it.
    with suppress(FileNotFoundError):
        files = [Path(address, path) for path in added_files(entry.read_text())]
        _sync_files([*files, entry])
    checkpoint = entry.with_suffix(".checkpoint.parquet")
    if version == 0:
        sync_log(address)
    elif checkpoint.exists():
        # Earlier entries were synced with their commits.
        _sync_files([checkpoint, checkpoint.with_name(LAST_CHECKPOINT)])


def sync_log(address: str) -> None:
    """Sync a whole transaction log, and the folders that contain it."""
    if "://" in address or not _is_enabled():
        return
    log = Path(address, LOG)
    _sync_files([*log.iterdir(), log, Path(address), Path(address).parent])


def sync_folder(path: str) -> None:
    """Sync the entries of a folder after files in it were moved, created or deleted."""
    if _is_enabled():
        _sync_one(Path(path))


def added_files(entry: str) -> list[str]:
    """Return the files that a commit adds, by their paths in the table's folder.

    Args:
        entry: the text of the commit in the transaction log.
    """
    paths = list[str]()
    for line in entry.splitlines():
        action = json.loads(line)
        for kind in ("add", "cdc"):
            if kind in action:
                paths.append(unquote(action[kind]["path"]))
    return paths


def _sync_files(files: Iterable[Path]) -> None:
    """Sync files, then the folders that contain them."""
    listed = list(files)
    for file in listed:
        _sync_one(file)
    # Each folder once, in the order of the files.
    for folder in dict.fromkeys(file.parent for file in listed):
        _sync_one(folder)


def _sync_one(path: Path) -> None:
    with suppress(FileNotFoundError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
