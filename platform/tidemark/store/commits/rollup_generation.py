"""Record in a roll-up's table which definition its windows have.

A roll-up does not have a state whose commits record the definition. A property of its table
therefore holds a text, the *kind*: `2-9f86d081884c` if the definition has changed twice, and its
digest is now `9f86d081884c`. When the digest changes, the roll-up gets a new identity, as it does
when its base is recreated, or no longer has the run that the roll-up has followed. Its next run
then replaces all windows.
"""

from collections.abc import Mapping

from tidemark.define.definition import Definition
from tidemark.define.identity.fingerprint import compute_digest

PROPERTY = "tidemark.kind"


def initial_generation(transform: Definition) -> str:
    """Return the kind of a new table: `0-` and the definition's digest."""
    return f"0-{_digest_windows(transform)}"


def next_generation(kind: str, transform: Definition, *, follows_base: bool) -> str:
    """Return the kind of a table after a definition has replaced all of its windows.

    If the definition and the base are still the same, this is the old kind. Otherwise, the number
    in the kind increases by one.

    Args:
        kind: the old kind; empty if the table is not a roll-up's.
        follows_base: true if the base still has the run that the table's windows were made from.
    """
    times, _, table_id = kind.partition("-")
    digest = _digest_windows(transform)
    if table_id == digest and follows_base:
        return kind
    return f"{int(times or 0) + 1}-{digest}"


def identity_suffix(kind: str) -> str:
    """Return the suffix that a kind adds to the identity of a roll-up: `+` and the kind.

    The suffix is empty if the definition has never changed, or if the table is not a roll-up's.
    """
    if kind.startswith("0-") or not kind:
        return ""
    return f"+{kind}"


def table_identity(table: str, properties: Mapping[str, str | None]) -> str:
    """Return the id of a table; for a roll-up's table, with the suffix of `identity_suffix`.

    Args:
        table: the id of the table.
        properties: the properties of the table.
    """
    return f"{table}{identity_suffix(properties.get(PROPERTY) or '')}"


def _digest_windows(transform: Definition) -> str:
    return compute_digest([transform.window, tuple(transform.keys), tuple(transform.aggregates)])
