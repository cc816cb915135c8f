"""Check that an engine fits Tidemark: its versions, settings, Python and store.

The check runs what a run and a stream run: a query with a Python function on the workers, and a
streaming query whose function runs in the Python of the server. Its tables are in a folder of the
database, which is removed afterwards.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from deltalake import write_deltalake
from deltalake.exceptions import DeltaError
from pyspark import cloudpickle
from pyspark.errors import PySparkException

from tidemark.base.errors import TidemarkError, summarize_error
from tidemark.base.settings import Settings
from tidemark.engine import python_probe
from tidemark.engine.conf import SETTINGS
from tidemark.engine.project_code import carry_code, find_code
from tidemark.engine.python_probe import describe_python, describe_server, describe_workers
from tidemark.store.committers.client_options import open_delta_table
from tidemark.store.committers.file_systems import file_system
from tidemark.store.refusals import translate_refusals

if TYPE_CHECKING:
    from tidemark.store.warehouse import Warehouse

_TASKS = 8
"""The number of tasks that describe their Python. Several workers take part in them."""

_SECONDS = 120
"""The longest wait for the streaming query."""

_OF_SERVER = ("pyspark", "pandas", "pyarrow", "numpy", "deltalake", "great-expectations")
"""The packages that the server's Python needs, for streams."""

_STREAM = "tidemark_streaming.streams.continuous"
"""The module that the server's Python imports, for streams. It imports what Tidemark needs."""

_OF_WORKERS = ("pandas", "pyarrow", "numpy")
"""The packages that the workers' Pythons need, for functions with Python UDFs."""

_ROWS = 3
"""The number of rows that the engine writes, and that this machine adds."""

_ADVICE = (
    "The engine, its workers, and this machine must reach the same warehouse, at the address in "
    "TIDEMARK_WAREHOUSE, each with credentials of its own: see 'An object store' on the page of "
    "settings."
)
"""The end of the message of each difference in the store."""

_OTHER_NAMES = {"Etc/UTC": "UTC", "GMT": "UTC", "Z": "UTC"}
"""Other names of the value of a setting."""

_ENVIRONMENT = "spark.executorEnv."
"""How the settings begin that set an environment variable of the workers."""


@dataclass(frozen=True)
class Difference:
    """A part of an engine that differs from the one that Tidemark needs.

    Args:
        part: the part of the engine.
        problem: the difference, its consequence, and what to do.
        required: false if the engine works, but is slower.
    """

    part: str
    problem: str
    required: bool = True


def check_engine(warehouse: "Warehouse", domains: Sequence[str]) -> Iterator[Difference]:
    """Yield what does not fit.

    Args:
        domains: the modules with definitions, which streams import on the engine.
    """
    yield from _check_settings(warehouse)
    folder = warehouse.path_of(f"_engine-check-{uuid4().hex}")
    try:
        store_differences = list(_check_store(warehouse, folder))
        yield from store_differences
        yield from _check_workers(warehouse, domains)
        if all(difference.part != "store" for difference in store_differences):
            yield from _check_server(warehouse, folder, domains)
    finally:
        _remove_folder(folder)


def _check_settings(warehouse: "Warehouse") -> Iterator[Difference]:
    for setting in SETTINGS:
        if setting.name.startswith(_ENVIRONMENT):
            # The Pythons themselves show their variables.
            continue
        present = _read_setting(warehouse, setting.name)
        # Extensions and excluded rules may have further values.
        values = [_OTHER_NAMES.get(value, value) for value in (present or "").split(",")]
        if setting.value not in values:
            yield Difference(
                "settings",
                f"{setting.name} is {present or 'not set'} instead of {setting.value}. "
                f"{setting.reason}",
                setting.required,
            )


def _read_setting(warehouse: "Warehouse", name: str) -> str | None:
    """Return the value of a setting, or its default; None if it has neither."""
    try:
        # With a default for the call, Spark would not return its own.
        return warehouse.spark.conf.get(name)
    except PySparkException as error:
        if error.getCondition() != "SQL_CONF_NOT_FOUND":
            raise
        return None


def _check_store(warehouse: "Warehouse", folder: str) -> Iterator[Difference]:
    """Let the engine write a table, let this machine read it and add rows, and let the engine read
    all rows. The workers of the engine write and read the files."""
    spark = warehouse.spark
    table = f"{folder}/table"
    yield from _compare_versions("Spark", spark.version, "pyspark")
    try:
        with translate_refusals(f"write '{table}' with the engine"):
            spark.range(_ROWS).write.format("delta").save(table)
    except (TidemarkError, PySparkException) as error:
        yield Difference("store", f"{summarize_error(error)}. {_ADVICE}")
        return
    try:
        with translate_refusals(f"read and write '{table}' on this machine"):
            opened = open_delta_table(table)
            (newest,) = opened.history(1)
            rows = opened.to_pyarrow_table()
            write_deltalake(opened, rows, mode="append")
    except (TidemarkError, DeltaError, OSError) as error:
        yield Difference(
            "store",
            f"The engine wrote '{table}', but this machine can't read and extend it: "
            f"{summarize_error(error)}. {_ADVICE}",
        )
        return
    try:
        with translate_refusals(f"read '{table}' with the engine"):
            read_rows = spark.read.format("delta").load(table).collect()
    except (TidemarkError, PySparkException) as error:
        yield Difference(
            "store",
            f"This machine extended '{table}', but the workers can't read it: "
            f"{summarize_error(error)}. {_ADVICE}",
        )
        return
    if len(read_rows) != 2 * _ROWS:
        yield Difference(
            "store",
            f"This machine extended '{table}' to {2 * _ROWS} rows, but the workers read "
            f"{len(read_rows)}. {_ADVICE}",
        )
        return
    delta = str(newest.get("engineInfo", "")).rpartition("Delta-Lake/")[2]
    yield from _compare_versions("Delta", delta, "delta-spark")


def _compare_versions(name: str, engine_version: str, package: str) -> Iterator[Difference]:
    installed = version(package)
    if _minor_version(engine_version) != _minor_version(installed):
        yield Difference(
            "versions",
            f"The engine has {name} {engine_version}, and this machine has {package} {installed}. "
            f"Use an engine with {name} {_minor_version(installed)}.",
        )


def _check_workers(warehouse: "Warehouse", domains: Sequence[str]) -> Iterator[Difference]:
    describe = describe_workers(_OF_WORKERS, domains)
    tasks = warehouse.spark.range(0, _TASKS, 1, _TASKS)
    try:
        with _sent_by_value():
            rows = tasks.mapInArrow(describe, "described STRING").collect()
    except PySparkException as error:
        yield Difference(
            "workers", f"A Python function fails on the workers: {summarize_error(error)}"
        )
        return
    local = describe_python(_OF_WORKERS, domains)
    different = dict[Difference, None]()
    for row in rows:
        worker = json.loads(row["described"])
        different |= dict.fromkeys(_compare_pythons("workers", worker, local))
    yield from different


def _check_server(
    warehouse: "Warehouse", folder: str, domains: Sequence[str]
) -> Iterator[Difference]:
    table = f"{folder}/server"
    modules = (_STREAM, *domains)
    describe = describe_server(_OF_SERVER, modules, table)
    code = find_code(warehouse.spark, Settings())
    stream = warehouse.spark.readStream.format("delta").load(f"{folder}/table")
    writer = stream.writeStream.option("checkpointLocation", f"{folder}/checkpoint")
    try:
        with _sent_by_value():
            function = describe if code is None else carry_code(code, describe)
            query = writer.foreachBatch(function).trigger(availableNow=True).start()
        has_ended = query.awaitTermination(_SECONDS)
    except PySparkException as error:
        yield Difference(
            "server", f"A stream's function fails on the server: {summarize_error(error)}"
        )
        return
    if not has_ended:
        query.stop()
        yield Difference("server", f"A streaming query did not end within {_SECONDS} seconds.")
        return
    (row,) = open_delta_table(table).to_pyarrow_table().to_pylist()
    local = describe_python(_OF_SERVER, modules)
    yield from _compare_pythons("server", json.loads(row["described"]), local)


@contextmanager
def _sent_by_value() -> Iterator[None]:
    """Send the functions of `python_probe` as they are, because the engine may lack the module."""
    cloudpickle.register_pickle_by_value(python_probe)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(python_probe)


def _compare_pythons(
    part: str, remote: dict[str, Any], local: dict[str, Any]
) -> Iterator[Difference]:
    """Yield the differences between a Python of the engine and that of this machine."""
    where = f"{remote['executable']} on {remote['host']}"
    if remote["python"] != local["python"]:
        yield Difference(
            part,
            f"{where} is Python {remote['python']}, and this machine has {local['python']}. "
            "Functions can't be sent between them: use the same version.",
        )
    if remote["hash_seed"] != "0":
        yield Difference(
            part,
            f"{where} runs without PYTHONHASHSEED=0, so it hashes text in its own way. Set this "
            "variable where you start the engine.",
        )
    for package, installed in local["packages"].items():
        engine_version = remote["packages"][package]
        if engine_version is None:
            yield Difference(
                part, f"{where} has no package {package}: install {package} {installed}."
            )
        elif _minor_version(engine_version) != _minor_version(installed):
            yield Difference(
                part,
                f"{where} has {package} {engine_version}, and this machine has {installed}: "
                "install the same version.",
            )
    for module, error in remote["failures"].items():
        yield Difference(
            part, f"{where} can't import {module}: {error}. Install what is missing in this Python."
        )


def _minor_version(text: str) -> str:
    """Return the first two parts of a version."""
    return ".".join(text.split(".")[:2])


def _remove_folder(folder: str) -> None:
    system, path = file_system(folder)
    try:
        system.delete_dir(path)
    except OSError:
        # The engine could not write, so the folder does not exist.
        return
