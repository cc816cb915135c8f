"""Names of the helper columns that Tidemark adds to rows while it processes them.

They share a namespace with the user's columns, so all of them start with a prefix that no
definition accepts.
"""

PREFIX = "_tidemark_"


def helper(name: str) -> str:
    """Return the name of a helper column."""
    return f"{PREFIX}{name}"


def is_helper(column: str) -> bool:
    """Return whether a name is reserved for helper columns; the engine ignores its case."""
    return column.lower().startswith(PREFIX)
