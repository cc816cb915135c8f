"""Translate engine failures into Tidemark's errors, if a definition or its data caused them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from tidemark.base import user_code
from tidemark.base.errors import DataError

_CLASS = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_OURS = ("22", "42")
"""The SQLSTATE classes of data exceptions (22) and of invalid expressions (42)."""


@contextmanager
def translate_failures(asset: str) -> Iterator[None]:
    """Translate an engine failure in the context into a `DataError` that names the asset.

    Only failures that the asset's definition or its data caused are translated.
    """
    try:
        yield
    except PySparkException as error:
        cause = find_cause(error)
        if cause is None:
            raise
        raise DataError(f"Asset '{asset}': {cause}") from error


def is_expression_invalid(error: PySparkException) -> bool:
    return (error.getSqlState() or "")[:2] in _OURS


def find_cause(error: PySparkException) -> str | None:
    """Return the reason why a definition or its data made the engine fail.

    Return None if the failure has another cause, or if the cause is unknown.
    """
    raised = user_code.find_in_text(str(error))
    if raised is not None:
        return f"a Python function failed {raised}."
    expression = _failed_expression(error)
    if not is_expression_invalid(error) or expression is None:
        return None
    lines = str(error).strip().splitlines() or [""]
    reason = _CLASS.sub("", lines[0]).split(" SQLSTATE:")[0].rstrip(". ")
    return f'the engine refuses "{expression}": {reason}.'


def _failed_expression(error: PySparkException) -> str | None:
    """Return the SQL expression that caused a failure, as it was written; None if unknown."""
    for context in error.getQueryContext() or ():
        try:
            fragment = " ".join(context.fragment().split())
        except Exception:
            continue
        if fragment:
            return fragment
    return None
