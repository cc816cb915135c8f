"""Read and remove the checkpoints of streaming queries.

A checkpoint records how far its query has read a table. An asset's progress is recorded in its
state, so the checkpoint of its query can be removed whenever the query is stopped.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import PurePosixPath
from typing import NamedTuple

import pyarrow.fs as pafs

from tidemark.store.committers.file_systems import file_system
from tidemark.store.refusals import translate_refusals
from tidemark.store.warehouse import Warehouse

FOLDER = "_checkpoints"
"""The folder of a database that holds the checkpoints of streaming queries."""


class Read(NamedTuple):
    """How far a query has read a table: the table's identity, and the version to continue with."""

    table: str
    version: int


def folder(asset: str) -> str:
    """Return the path of the checkpoint of an asset's query, relative to the database."""
    return f"{FOLDER}/{asset}"


def remove(warehouse: Warehouse, asset: str) -> None:
    """Remove the checkpoint of an asset's query, if there is one. The query must not be running."""
    system, path = file_system(warehouse.path(folder(asset)))
    if system.get_file_info(path).type == pafs.FileType.Directory:
        with translate_refusals("remove the checkpoint of the stream"):
            warehouse.remove(folder(asset))


def read(warehouse: Warehouse, asset: str | None = None) -> Iterator[Read]:
    """Yield the newest offset of each checkpoint, or of the checkpoint of one asset's query."""
    system, path = file_system(warehouse.path(FOLDER if asset is None else folder(asset)))
    every = pafs.FileSelector(path, allow_not_found=True, recursive=True)
    newest: dict[str, pafs.FileInfo] = {}
    for info in system.get_file_info(every):
        place = PurePosixPath(info.path)
        if place.parent.name == "offsets" and place.name.isdigit():
            known = newest.setdefault(str(place.parent), info)
            if int(place.name) > int(known.base_name):
                newest[str(place.parent)] = info
    for info in newest.values():
        with system.open_input_stream(info.path) as file:
            lines = file.readall().decode().splitlines()
        for line in lines:
            with suppress(ValueError):
                offset = json.loads(line)
                if isinstance(offset, dict) and "reservoirVersion" in offset:
                    yield Read(offset["reservoirId"], int(offset["reservoirVersion"]))
