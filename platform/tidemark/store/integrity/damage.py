"""Describe damage: tables that lack data, and the way to recover from that."""

from collections.abc import Iterable
from dataclasses import dataclass

from tidemark.base.errors import DataError

ADVICE = (
    "Restore the tables from a backup in which they have these versions, or the whole home from "
    "any backup. Without a backup, drop damaged assets and derived sources (`tidemark drop`), and "
    "compute them again from their event logs."
)
"""The way to recover from damage, for messages."""


@dataclass(frozen=True)
class Damage:
    """A table that lacks data.

    Args:
        problem: the problem, with the table's version; completes "Table '…' …".
        asset: the asset whose tables don't belong together; None for a table of a source or of
            Tidemark itself.
    """

    table: str
    problem: str
    asset: str | None = None

    def __str__(self) -> str:
        return f"Table '{self.table}' {self.problem}"


class DamageError(DataError):
    """Tables that don't belong together, so that Tidemark neither reads nor changes them."""

    def __init__(self, damages: Iterable[Damage]) -> None:
        problems = " ".join(f"{damage}." for damage in damages)
        super().__init__(
            f"{problems} The cause is a power failure, a damaged disk, a restored table, or a copy "
            f"made of a running home. Nothing was changed. {ADVICE}"
        )
