"""Kinds: of what windows a roll-up's table is made.

A roll-up has no state whose commits tell its definition, so its table does, by a property: how
often its windows became others, and the digest of what they are now. Where that is told anew, the
roll-up begins a new life, as where its base does: all of its windows are replaced.
"""

from collections.abc import Mapping

from tidemark.define.definition import Definition
from tidemark.define.fingerprint import digest

PROPERTY = "tidemark.kind"


def first(transform: Definition) -> str:
    """The kind of a table that is made by a definition."""
    return f"0-{_digest(transform)}"


def next_to(told: str, transform: Definition) -> str:
    """The kind of a table of another kind whose windows become those of a definition; the same
    where they are that."""
    times, _, there = told.partition("-")
    now = _digest(transform)
    return told if there == now else f"{int(times) + 1}-{now}"


def suffix(told: str) -> str:
    """What a kind adds to the life of a roll-up: nothing for the first one of a table, and where an
    earlier Tidemark told none."""
    return "" if told.startswith("0-") or not told else f"+{told}"


def life(table: str, properties: Mapping[str, str | None]) -> str:
    """What the life of a roll-up has of its own table, by that one's identity and properties; of a
    table of another asset, its identity."""
    return f"{table}{suffix(properties.get(PROPERTY) or '')}"


def _digest(transform: Definition) -> str:
    return digest([transform.window, tuple(transform.keys), tuple(transform.aggregates)])
