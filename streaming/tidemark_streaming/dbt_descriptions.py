"""Whose a description of a column is in the sources of a dbt project: the definition's, as it is or
as it was before, or a person's.

Nothing in the file marks it, as a definition tells only two kinds of text. One is a sentence of
Tidemark's, of the columns that it adds and of keys. The other is the call of an aggregate with all
of its arguments, and perhaps ` where` and a condition: `sum(amount)`. So that is what a person's
description is not: one of these sentences, or a call and nothing else. `sum(amount), in euros` is a
person's; what is written behind a condition can't be told from it.
"""

from collections.abc import Collection, Iterable

from tidemark import aggregate
from tidemark.define.definition import Definition

_FUNCTIONS = {*aggregate.__all__} - {"Aggregate", "python"}


def functions(transforms: Iterable[Definition]) -> set[str]:
    """The names by which aggregates are called: Tidemark's, and those of some definitions' own."""
    own = {str(value) for t in transforms for value in t.aggregates.values()}
    return _FUNCTIONS | {call.partition("(")[0] for call in own}


def told(description: str, sentences: Collection[str], functions: Collection[str]) -> bool:
    """Whether a definition tells, or has told, such a description.

    Args:
        sentences: those that definitions tell.
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
