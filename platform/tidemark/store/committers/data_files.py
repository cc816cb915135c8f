"""Open the data files of a table, on a disk or in an object store."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from tidemark.store.committers.file_systems import file_system, local_folder

_PARQUET = ds.ParquetFileFormat(
    read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
)

_WHOLE_FILE_BYTES = 4 << 20
"""The size up to which a file of an object store is read as a whole, in one request. Otherwise, its
footer and its columns are read in a request each."""


def open_dataset(
    location: str, files: Sequence[Mapping[str, Any]], schema: pa.Schema
) -> ds.Dataset:
    """Return the rows of data files as a dataset.

    Args:
        location: the path or address of the table.
        files: the files in the table's transaction log, with their paths and sizes.
    """
    system, folder = file_system(location)
    if local_folder(location) is not None:
        paths = [f"{folder}/{file['path']}" for file in files]
        return ds.dataset(paths, schema=schema, format=_PARQUET, filesystem=system)
    from tidemark.store.committers.object_files import ObjectFolder

    small = [file["path"] for file in files if file["size_bytes"] <= _WHOLE_FILE_BYTES]
    contents = dict(zip(small, ObjectFolder(location).read_cached(small), strict=True))
    fragments = list[ds.Fragment]()
    for file in files:
        path = file["path"]
        if path in contents:
            fragments.append(_PARQUET.make_fragment(pa.py_buffer(contents[path])))
        else:
            size = file["size_bytes"]
            fragments.append(_PARQUET.make_fragment(f"{folder}/{path}", system, file_size=size))
    return ds.FileSystemDataset(fragments, schema, _PARQUET)
