"""Read and remove the checkpoints of streaming queries.

A checkpoint records how far its query has read a table. An asset's progress is recorded in its
state, so the checkpoint of its query can be removed whenever the query is stopped.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import PurePosixPath
from typing import NamedTuple

import pyarrow.fs as pafs

from tidemark.store.committers.file_systems import file_system
from tidemark.store.refusals import translate_refusals
from tidemark.store.warehouse import Warehouse

FOLDER = "_checkpoints"
"""The folder of a database that holds the checkpoints of streaming queries."""


class ReadOffset(NamedTuple):
    """How far a query has read a table: the table's identity, and the version to continue with."""

    table: str
    version: int


def checkpoint_folder(asset: str) -> str:
    """Return the path of the checkpoint of an asset's query, relative to the database."""
    return f"{FOLDER}/{asset}"


def remove_checkpoint(warehouse: Warehouse, asset: str) -> None:
    """Remove the checkpoint of an asset's query, if there is one. The query must not be running."""
    system, path = file_system(warehouse.path_of(checkpoint_folder(asset)))
    if system.get_file_info(path).type == pafs.FileType.Directory:
        with translate_refusals("remove the checkpoint of the stream"):
            warehouse.remove_folder(checkpoint_folder(asset))


def read_offsets(warehouse: Warehouse, asset: str | None = None) -> Iterator[ReadOffset]:
    """Yield the newest offset of each checkpoint, or of the checkpoint of one asset's query."""
    folder = FOLDER if asset is None else checkpoint_folder(asset)
    system, path = file_system(warehouse.path_of(folder))
    all_files = pafs.FileSelector(path, allow_not_found=True, recursive=True)
    newest_files = _find_newest_files(system.get_file_info(all_files))
    for info in newest_files:
        with system.open_input_stream(info.path) as file:
            lines = file.readall().decode().splitlines()
        for line in lines:
            with suppress(ValueError):
                offset = json.loads(line)
                if isinstance(offset, dict) and "reservoirVersion" in offset:
                    yield ReadOffset(offset["reservoirId"], int(offset["reservoirVersion"]))


def _find_newest_files(infos: Iterable[pafs.FileInfo]) -> list[pafs.FileInfo]:
    """Return the file with the highest number in each folder named `offsets`."""
    newest = dict[str, pafs.FileInfo]()
    for info in infos:
        path = PurePosixPath(info.path)
        if path.parent.name != "offsets" or not path.name.isdigit():
            continue
        earlier = newest.setdefault(str(path.parent), info)
        if int(path.name) > int(earlier.base_name):
            newest[str(path.parent)] = info
    return list(newest.values())
