"""Decide whether a definition or a person wrote a column's description in dbt's sources.

The file does not need to mark that, because definitions write only two kinds of text. One is a
fixed text of Tidemark's, for the columns that it adds and for keys. The other is the call of an
aggregate with all of its arguments, optionally followed by ` where` and a condition: `sum(amount)`.
Every other text is a person's, as is `sum(amount), in euros`. Words that a person adds after a
condition can't be distinguished from the condition.
"""

from collections.abc import Collection, Iterable

from tidemark import aggregate
from tidemark.define.definition import Definition

_FUNCTIONS = {*aggregate.__all__} - {"Aggregate", "python"}


def functions(transforms: Iterable[Definition]) -> set[str]:
    """Return the names of aggregates in calls: Tidemark's, and users' own in some definitions."""
    own = {str(value) for t in transforms for value in t.aggregates.values()}
    return _FUNCTIONS | {call.partition("(")[0] for call in own}


def told(description: str, sentences: Collection[str], functions: Collection[str]) -> bool:
    """Return whether a definition writes, or could have written, this description.

    Args:
        sentences: the fixed texts that definitions write.
        functions: the names of aggregates.
    """
    return description in sentences or _call(description, functions)


def _call(text: str, functions: Collection[str]) -> bool:
    function, opened, rest = text.partition("(")
    if not opened or function not in functions:
        return False
    depth, quote = 1, ""
    for place, sign in enumerate(rest):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"`":
            quote = sign
        else:
            depth += {"(": 1, ")": -1}.get(sign, 0)
        if depth == 0:
            behind = rest[place + 1 :]
            return not behind or behind.startswith(" where ")
    return False
