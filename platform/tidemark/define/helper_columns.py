"""Names of the columns that Tidemark adds to rows while it works on them.

They live among the user's columns, so all of them begin with a prefix that no definition accepts.
"""

PREFIX = "_tidemark_"


def helper(name: str) -> str:
    """Return the name of a helper column."""
    return f"{PREFIX}{name}"


def is_helper(column: str) -> bool:
    """Return whether a name is reserved for helper columns; the engine ignores its case."""
    return column.lower().startswith(PREFIX)
