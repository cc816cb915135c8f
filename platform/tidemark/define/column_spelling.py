"""Spelling of column names in SQL expressions.

Aggregates of definitions in YAML and SQL have the same expressions as those in Python, and so the
same fingerprints.
"""

import re

_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_RESERVED = re.compile(
    r"all|and|anti|any|array|as|at|authorization|between|both|by|case|cast|check|collate|"
    r"column|constraint|create|cross|cube|current_catalog|current_database|current_date|"
    r"current_schema|current_time|current_timestamp|current_user|distinct|else|end|escape|"
    r"except|exists|extract|false|fetch|filter|for|foreign|from|full|grant|group|grouping|"
    r"having|in|inner|intersect|interval|into|is|join|lateral|leading|left|like|"
    r"localtimestamp|minus|natural|not|now|null|on|only|or|order|outer|overlaps|position|"
    r"primary|references|right|rollup|select|semi|session_user|some|struct|system_user|"
    r"table|then|time|to|trailing|trim|true|union|unique|unknown|user|using|values|when|"
    r"where|window|with",
    re.IGNORECASE,
)
"""Names that mean something else in an expression of Spark SQL, unless they are quoted."""


def write_column(column: str) -> str:
    """Return a column as users write it in Python, so that both have the same fingerprint."""
    if _PLAIN_NAME.fullmatch(column) and not _RESERVED.fullmatch(column):
        return column
    return f"`{column}`"
