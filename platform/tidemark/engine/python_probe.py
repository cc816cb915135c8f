"""Describe the Python that runs this module.

The engine's Python may lack Tidemark, so this module imports nothing of it, and is sent to the
engine as it is (`pyspark.cloudpickle`, by value).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def describe_python(packages: Sequence[str], modules: Sequence[str]) -> dict[str, Any]:
    """Return what must be the same in two Pythons that work together, as JSON can hold it.

    Args:
        packages: the installed packages whose versions to return.
        modules: the modules to import. The result has the error of each that can't be imported.
    """
    import importlib
    import os
    import platform
    import sys
    from importlib.metadata import PackageNotFoundError, version

    versions: dict[str, str | None] = {}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    failures: dict[str, str] = {}
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:
            failures[module] = f"{type(error).__name__}: {error}"
    return {
        "host": platform.node(),
        "python": ".".join(map(str, sys.version_info[:2])),
        "executable": sys.executable,
        "hash_seed": os.environ.get("PYTHONHASHSEED"),
        "packages": versions,
        "failures": failures,
    }


def describe_workers(
    packages: Sequence[str], modules: Sequence[str]
) -> "Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    """Return a function for `mapInArrow`: each task returns the description of its Python."""

    def describe_batches(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import json

        import pyarrow as pa

        for _ in batches:
            text = json.dumps(describe_python(packages, modules))
            yield pa.RecordBatch.from_pydict({"described": [text]})

    return describe_batches


def describe_server(
    packages: Sequence[str], modules: Sequence[str], table: str
) -> "Callable[[DataFrame, int], None]":
    """Return a function for `foreachBatch`: it writes the description of the server's Python into a
    Delta table."""

    def write_description(batch: "DataFrame", _: int) -> None:
        import json

        text = json.dumps(describe_python(packages, modules))
        rows = batch.sparkSession.createDataFrame([(text,)], "described STRING")
        rows.write.format("delta").mode("append").save(table)

    return write_description
