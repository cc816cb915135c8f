"""The settings that an engine should have, also one that Tidemark has not started."""

from collections.abc import Iterator
from typing import NamedTuple

from tidemark.engine.queries.rules import EXCLUDED_RULES, UNSAFE_RULE


class EngineSetting(NamedTuple):
    """A setting that Spark must or should have, and the reason.

    Args:
        reason: what happens with another value, as a sentence.
        required: true if Tidemark's results or commands need the value; false if only its speed
            or memory does.
    """

    name: str
    value: str
    reason: str
    required: bool = False


SETTINGS = (
    EngineSetting(
        "spark.sql.extensions",
        "io.delta.sql.DeltaSparkSessionExtension",
        "Without Delta's SQL, marts can't be built.",
        required=True,
    ),
    EngineSetting(
        "spark.sql.catalog.spark_catalog",
        "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "Without Delta's catalog, tables can't be registered.",
        required=True,
    ),
    EngineSetting(
        "spark.sql.ansi.enabled",
        "true",
        "Without it, an overflow or an invalid cast becomes another value or null, silently.",
        required=True,
    ),
    EngineSetting(
        "spark.sql.session.timeZone",
        "UTC",
        "In another zone, a transform's dates and hours are those of that zone.",
        required=True,
    ),
    EngineSetting(
        "spark.databricks.delta.schema.autoMerge.enabled",
        "false",
        "Otherwise, a write of your own can add columns to a table.",
        required=True,
    ),
    EngineSetting(
        "spark.databricks.delta.createEmptySchemaTable.enabled",
        "false",
        "Otherwise, registering a table that an erasure or a drop has just removed creates a table "
        "without columns, which no run can open.",
        required=True,
    ),
    EngineSetting(
        "spark.executorEnv.PYTHONHASHSEED",
        "0",
        "Python workers must hash text in the same way.",
        required=True,
    ),
    EngineSetting(
        "spark.connect.session.manager.defaultSessionTimeout",
        "1d",
        "A session holds the streaming queries of a stream. The default ends it after an hour "
        "without a client.",
        required=True,
    ),
    EngineSetting(
        EXCLUDED_RULES,
        UNSAFE_RULE,
        "This rule of the optimizer can lose rows (SPARK-57547). Tidemark's sessions exclude it; "
        "your own sessions need the setting.",
    ),
    EngineSetting(
        "spark.sql.catalogImplementation",
        "hive",
        "A catalog in memory loses its tables when the server restarts.",
    ),
    EngineSetting(
        "spark.sql.streaming.pollingDelay",
        "200ms",
        "The default is 10 ms: an idle stream lists the log of its table continuously.",
    ),
    EngineSetting(
        "spark.databricks.delta.snapshotPartitions",
        "1",
        "The default is 50 tasks to read the log of a table.",
    ),
    EngineSetting(
        "spark.databricks.delta.delta.log.cacheSize",
        "200",
        "The default keeps the logs of 10,000 tables in memory, at one or two megabytes each.",
    ),
    EngineSetting(
        "spark.databricks.delta.delta.log.cacheRetentionMinutes",
        "5",
        "The default keeps them for an hour.",
    ),
    EngineSetting(
        "spark.sql.codegen.cache.maxEntries",
        "500",
        "With the default of 100, queries of a few assets evict each other's compiled code, and "
        "compile it again for a third of a run's time.",
    ),
    EngineSetting(
        "spark.python.sql.dataFrameDebugging.enabled",
        "false",
        "By default, each call on a column searches the stack for its line in your code, a tenth "
        "of a small run's time.",
    ),
    EngineSetting(
        "spark.sql.ui.explainMode",
        "simple",
        "The default writes each plan for Spark's pages at length.",
    ),
    EngineSetting(
        "spark.sql.ui.retainedExecutions",
        "20",
        "The default keeps 1,000 plans of each session.",
    ),
)
"""The settings, those that Tidemark requires first."""


def as_properties() -> Iterator[str]:
    """Yield the lines of a `spark-defaults.conf` with the settings, each below its reason."""
    for setting in SETTINGS:
        yield f"# {setting.reason}"
        yield f"{setting.name} {setting.value}"
        yield ""
