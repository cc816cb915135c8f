"""Show values of events as plain text on Dagster's pages, in tables and descriptions.

Dagster's pages show Markdown, also in descriptions. Without these functions, the value of an event
could act there as a link, a picture or HTML of Dagster's own page.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

import dagster as dg


def as_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> dg.TableMetadataValue:
    """Return a table of texts. None is an empty cell, and a row may end before the last column."""
    return dg.MetadataValue.table(
        [dg.TableRecord(dict(zip_longest(columns, map(_cell, row), fillvalue=""))) for row in rows],
        dg.TableSchema([dg.TableColumn(name) for name in columns]),
    )


def pairs(values: Mapping[str, object]) -> str:
    """Return values with their names in one cell."""
    return ", ".join(f"{name}={value}" for name, value in values.items())


def literal(text: str) -> str:
    """Return a text as a code span, which a Markdown description shows unchanged."""
    line = " ".join(text.split())
    fence = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    # Markdown removes one space at both ends.
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    if line:
        return f"{fence}{pad}{line}{pad}{fence}"
    return ""


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)
