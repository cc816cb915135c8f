"""Tests that Arrow finds the same files in an object store as on a disk."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from tidemark.base.errors import StoreError
from tidemark.store.committers.file_systems import file_system
from tidemark.store.refusals import translate_refusals

FILES = {
    "top.json": b"1",
    "one/_delta_log/00.json": b"22",
    "one/_delta_log/01.json": b"333",
    "one/day=2026-01-01/a b%20c.parquet": b"4444",
    "one/empty": b"",
    "other/part-0/rows.parquet": b"55555",
}


@pytest.fixture(params=["disk", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path, bucket: str) -> str:
    """Return the path or address of a folder with `FILES`."""
    place = str(tmp_path) if request.param == "disk" else f"{bucket}/{uuid4().hex}"
    system, folder = file_system(place)
    for name, content in FILES.items():
        system.create_dir(f"{folder}/{name}".rpartition("/")[0])
        with system.open_output_stream(f"{folder}/{name}") as file:
            file.write(content)
    return place


def describe(infos: Sequence[pafs.FileInfo], folder: str) -> Mapping[str, int | str]:
    """Return the size of each file, and the type of everything else."""
    return {
        info.path.removeprefix(f"{folder}/"): info.size
        if info.type == pafs.FileType.File
        else info.type.name
        for info in infos
    }


def test_files_are_listed_with_their_folders(place: str) -> None:
    system, folder = file_system(place)
    top = system.get_file_info(pafs.FileSelector(folder))
    assert describe(top, folder) == {"top.json": 1, "one": "Directory", "other": "Directory"}
    below = system.get_file_info(pafs.FileSelector(f"{folder}/one", recursive=True))
    assert describe(below, folder) == {
        "one/_delta_log": "Directory",
        "one/_delta_log/00.json": 2,
        "one/_delta_log/01.json": 3,
        "one/day=2026-01-01": "Directory",
        "one/day=2026-01-01/a b%20c.parquet": 4,
        "one/empty": 0,
    }
    assert all(info.mtime is not None for info in below if info.type == pafs.FileType.File)


def test_a_path_is_a_file_a_folder_or_nothing(place: str) -> None:
    system, folder = file_system(place)
    names = ["top.json", "one", "one/_delta_log/01.json", "on", "one/_delta_log/0", "missing"]
    infos = system.get_file_info([f"{folder}/{name}" for name in names])
    assert describe(infos, folder) == {
        "top.json": 1,
        "one": "Directory",
        "one/_delta_log/01.json": 3,
        "on": "NotFound",
        "one/_delta_log/0": "NotFound",
        "missing": "NotFound",
    }


def test_a_missing_folder_is_an_error_unless_it_is_allowed(place: str) -> None:
    system, folder = file_system(place)
    missing = f"{folder}/missing"
    assert system.get_file_info(pafs.FileSelector(missing, allow_not_found=True)) == []
    with pytest.raises(FileNotFoundError):
        system.get_file_info(pafs.FileSelector(missing))
    with pytest.raises(FileNotFoundError):
        system.open_input_file(f"{folder}/missing/file")


def test_files_are_copied_moved_and_deleted(place: str) -> None:
    system, folder = file_system(place)
    system.copy_file(f"{folder}/one/_delta_log/01.json", f"{folder}/one/copy")
    system.move(f"{folder}/one/empty", f"{folder}/one/moved")
    system.delete_file(f"{folder}/top.json")
    system.delete_dir(f"{folder}/one/_delta_log")
    found = system.get_file_info(pafs.FileSelector(folder, recursive=True))
    files = [info for info in found if info.type == pafs.FileType.File]
    assert describe(files, folder) == {
        "one/copy": 3,
        "one/moved": 0,
        "one/day=2026-01-01/a b%20c.parquet": 4,
        "other/part-0/rows.parquet": 5,
    }
    with system.open_input_file(f"{folder}/one/copy") as file:
        assert file.read() == b"333"


def test_a_large_parquet_file_is_read_in_parts(place: str) -> None:
    system, folder = file_system(place)
    numbers = pa.table({"n": range(400_000), "text": [f"{n * 7919:x}" for n in range(400_000)]})
    path = f"{folder}/one/rows.parquet"
    with pq.ParquetWriter(path, numbers.schema, filesystem=system) as writer:
        for start in range(0, numbers.num_rows, 50_000):
            writer.write_table(numbers.slice(start, 50_000))
    assert pq.read_metadata(path, filesystem=system).num_row_groups == 8
    assert pq.read_table(path, columns=["text"], filesystem=system)["text"] == numbers["text"]
    assert pq.read_table(path, filesystem=system) == numbers


def test_an_unknown_bucket_is_one_line(bucket: str) -> None:
    system, folder = file_system(f"{bucket}-without-files/tidemark")
    with (
        pytest.raises(StoreError, match="has no such bucket") as raised,
        translate_refusals("read"),
    ):
        system.get_file_info(pafs.FileSelector(folder))
    assert "\n" not in str(raised.value)
