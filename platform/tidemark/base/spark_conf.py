"""Check the Spark settings that a user gives to the embedded engine.

All settings of Spark are allowed, except those that determine results of computations, the location
of the tables, or access to the engine.
"""

from collections.abc import Iterator, Mapping

from tidemark.base.errors import DefinitionError

_INSTEAD = {
    "spark.driver.memory": "engine_memory",
    "spark.driver.extraJavaOptions": "engine_java_options",
    "spark.driver.defaultJavaOptions": "engine_java_options",
    "spark.driver.extraClassPath": "engine_jars",
    "spark.jars": "engine_jars",
    "spark.ui.enabled": "engine_ui_port",
    "spark.ui.port": "engine_ui_port",
    "spark.eventLog.enabled": "engine_event_log",
    "spark.eventLog.dir": "engine_event_log",
    "spark.sql.warehouse.dir": "warehouse",
}
"""Spark settings that users can't set, each with the setting of Tidemark to use instead."""

_OWN = (
    "spark.master",
    "spark.app.name",
    "spark.local.dir",
    "spark.submit.",
    "spark.connect.",
    "spark.driver.host",
    "spark.driver.bindAddress",
    "spark.driver.port",
    "spark.jars.",
    "spark.plugins",
    "spark.python.sql.dataFrameDebugging.enabled",
    "spark.sql.extensions",
    "spark.sql.catalog.spark_catalog",
    "spark.sql.catalogImplementation",
    "spark.sql.ansi.enabled",
    "spark.sql.session.timeZone",
    "spark.sql.optimizer.excludedRules",
    "spark.sql.streaming.checkpointFileManagerClass",
    "spark.hadoop.fs.file.impl",
    "spark.hadoop.hive.exec.scratchdir",
    "spark.delta.logStore.file.impl",
    "spark.authenticate",
    "spark.authenticate.",
    "spark.network.crypto.",
    "spark.io.encryption.",
    "spark.task.maxDirectResultSize",
    "spark.databricks.delta.createEmptySchemaTable.enabled",
    "spark.databricks.delta.schema.autoMerge.enabled",
    "spark.ui.killEnabled",
)
"""The Spark settings that Tidemark depends on. A name that ends with a dot is a prefix."""


def parse_conf(conf: object) -> object:
    """Return a mapping from the names of settings to their values, as text.

    Args:
        conf: `name=value` pairs separated by semicolons, or a TOML table. TOML turns an unquoted
            name with dots, such as `spark.sql.shuffle.partitions`, into nested tables; this
            function joins the parts again. Any other object is returned as it is.
    """
    if isinstance(conf, str):
        pairs = [pair.partition("=") for pair in conf.split(";") if pair.strip()]
        return {name.strip(): value.strip() for name, _, value in pairs}
    if isinstance(conf, Mapping):
        return dict(_flatten_table(conf))
    return conf


def check_conf(conf: Mapping[str, str]) -> None:
    """Raise an error for a setting that is not Spark's, or is Tidemark's own."""
    for name in conf:
        if not name.startswith("spark.") or name.endswith("."):
            raise DefinitionError(
                f"Setting engine_conf has '{name}', which is not a setting of Spark: its settings "
                "begin with 'spark.', for example spark.sql.shuffle.partitions."
            )
        if (instead := _INSTEAD.get(name)) is not None:
            raise DefinitionError(
                f"Setting engine_conf has '{name}', which Tidemark's setting {instead} specifies: "
                "use that setting instead."
            )
        if any(_is_reserved(name, reserved) for reserved in _OWN):
            raise DefinitionError(
                f"Setting engine_conf has '{name}', which Tidemark depends on and which can't be "
                "changed: remove it."
            )


def _is_reserved(name: str, reserved: str) -> bool:
    if reserved.endswith("."):
        return name.startswith(reserved)
    return name == reserved


def _flatten_table(table: Mapping[object, object], above: str = "") -> Iterator[tuple[str, object]]:
    """Yield each value of a table and its nested tables, with its name in dotted form."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten_table(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", str(value).lower() if isinstance(value, bool) else str(value)
