"""Determine a roll-up's kind: which definition of windows its table contains.

A roll-up does not have a state whose commits record its definition, so its table records it in a
property. The property holds how often the definition has changed, and the digest of the current
one. When the digest changes, the roll-up gets a new identity, as it does when its base is
recreated: all of its windows are replaced.
"""

from collections.abc import Mapping

from tidemark.define.definition import Definition
from tidemark.define.identity.fingerprint import digest

PROPERTY = "tidemark.kind"


def initial_generation(transform: Definition) -> str:
    """Return the kind of a table that a definition creates."""
    return f"0-{_digest(transform)}"


def next_generation(kind: str, transform: Definition) -> str:
    """Return the kind of an existing table once it contains the windows of a definition.

    The result is the old kind if the definition is the same.

    Args:
        kind: the old kind; empty if the table is not a roll-up's.
    """
    times, _, table_id = kind.partition("-")
    now = _digest(transform)
    return kind if table_id == now else f"{int(times or 0) + 1}-{now}"


def identity_suffix(kind: str) -> str:
    """Return the part of a roll-up's identity that its kind adds.

    Empty for a table's first kind, and for a table that is not a roll-up's.
    """
    return "" if kind.startswith("0-") or not kind else f"+{kind}"


def table_identity(table: str, properties: Mapping[str, str | None]) -> str:
    """Return the part of a roll-up's identity that its own table contributes.

    For a table of another asset, it is the table's identity.
    """
    return f"{table}{identity_suffix(properties.get(PROPERTY) or '')}"


def _digest(transform: Definition) -> str:
    return digest([transform.window, tuple(transform.keys), tuple(transform.aggregates)])
