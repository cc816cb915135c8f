"""The rule of Spark's optimiser that every session does without, as it can lose rows.

A kept frame that a query refers to twice, and that is not computed yet, is built by two jobs at
once; adaptive execution may then read its row count as 0, take it for empty, and drop rows without
an error (SPARK-57547, open in Spark 4.2). This rule is what acts on such a count.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXCLUDED_RULES = "spark.sql.adaptive.optimizer.excludedRules"
UNSAFE_RULE = "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"


def exclude_unsafe(spark: "SparkSession") -> None:
    """Exclude the rule in a session, beside those that its engine excludes already."""
    excluded = spark.conf.get(EXCLUDED_RULES, None)
    spark.conf.set(EXCLUDED_RULES, beside(excluded, UNSAFE_RULE))


def beside(excluded: str | None, rule: str) -> str:
    """A setting of excluded rules, with a further one."""
    rules = [each.strip() for each in (excluded or "").split(",") if each.strip()]
    return ",".join(dict.fromkeys([*rules, rule]))
