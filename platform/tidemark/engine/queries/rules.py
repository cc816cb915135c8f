"""Exclude an optimizer rule of Spark from every session, because it can lose rows.

If a query refers twice to a persisted DataFrame that is not computed yet, two jobs compute the
DataFrame at the same time. Adaptive execution may then read its row count as 0, treat it as empty,
and drop rows without an error (SPARK-57547, open in Spark 4.2). The excluded rule,
`AQEPropagateEmptyRelation`, acts on that count.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXCLUDED_RULES = "spark.sql.adaptive.optimizer.excludedRules"
UNSAFE_RULE = "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"


def exclude_unsafe(spark: "SparkSession") -> None:
    """Exclude the rule `UNSAFE_RULE` in a session. Keep the rules that are already excluded."""
    excluded = spark.conf.get(EXCLUDED_RULES, None)
    spark.conf.set(EXCLUDED_RULES, with_excluded_rule(excluded, UNSAFE_RULE))


def with_excluded_rule(excluded: str | None, rule: str) -> str:
    rules = [rule_name.strip() for rule_name in (excluded or "").split(",") if rule_name.strip()]
    rules.append(rule)
    return ",".join(dict.fromkeys(rules))
