"""Determine the kind of a roll-up's table: which definition its windows have.

A roll-up does not have a state whose commits record the definition. A property of its table
therefore holds the number of changes of the definition, and the digest of the current definition.
When the digest changes, the roll-up gets a new identity, as it does when its base is recreated. Its
next run then replaces all windows.
"""

from collections.abc import Mapping

from tidemark.define.definition import Definition
from tidemark.define.identity.fingerprint import digest

PROPERTY = "tidemark.kind"


def initial_generation(transform: Definition) -> str:
    """Return the kind of a table that a definition creates."""
    return f"0-{_digest(transform)}"


def next_generation(kind: str, transform: Definition) -> str:
    """Return the kind that an existing table has once it contains the windows of a definition.

    The result is the old kind if the definition is the same.

    Args:
        kind: the old kind; empty if the table is not a roll-up's.
    """
    times, _, table_id = kind.partition("-")
    now = _digest(transform)
    return kind if table_id == now else f"{int(times or 0) + 1}-{now}"


def identity_suffix(kind: str) -> str:
    """Return the suffix that the kind of a roll-up's table adds to the roll-up's identity.

    The suffix is empty for a table's first kind, and for a table that is not a roll-up's.
    """
    return "" if kind.startswith("0-") or not kind else f"+{kind}"


def table_identity(table: str, properties: Mapping[str, str | None]) -> str:
    """Return the part of a roll-up's identity that comes from its own table.

    For a table that is not a roll-up's, the result is `table`.

    Args:
        table: the identity of the table.
        properties: the properties of the table.
    """
    return f"{table}{identity_suffix(properties.get(PROPERTY) or '')}"


def _digest(transform: Definition) -> str:
    return digest([transform.window, tuple(transform.keys), tuple(transform.aggregates)])
