"""The common base of joins and as-of joins, whose rows each combine rows of two sources."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark.base.errors import DefinitionError
from tidemark.define.column_type import simple_type
from tidemark.define.derived.derived_source import (
    DerivedSource,
    Lineage,
    name_columns,
    own_columns,
    refuse_retractions,
)
from tidemark.define.source import Source

LINEAGE = ("left_arrival", "left_position", "right_arrival", "right_position")
"""The columns that identify the two rows of a pair in the event logs of the bases."""
SIDES = (Lineage(*LINEAGE[:2]), Lineage(*LINEAGE[2:]))


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """A derivation whose rows each combine rows of two sources with equal keys.

    Args:
        on: the key columns, which both sources have.
        left_columns, right_columns: the columns of each base, except the keys, mapped to their
            names in the derived source.
    """

    left: Source
    right: Source
    on: tuple[str, ...]
    left_columns: Mapping[str, str]
    right_columns: Mapping[str, str]

    asset = None

    @property
    def base_sources(self) -> tuple[Source, ...]:
        return self.left, self.right

    @property
    def partner_keys(self) -> tuple[str, ...] | None:
        return self.on


def is_paired(source: Source) -> bool:
    """Return whether the rows of a source each combine rows of two sources."""
    return isinstance(source, DerivedSource) and isinstance(source.derivation, Pairing)


def check_keys(
    owner: str, left_source: Source, right_source: Source, on: Sequence[str]
) -> tuple[str, ...]:
    """Return the key columns without repetitions. Refuse keys that can't join the sources.

    Args:
        owner: the start of an error message, as in "Join 'paid'".
    """
    if left_source.name == right_source.name:
        raise DefinitionError(f"{owner}: '{left_source.name}' can't be joined with itself.")
    refuse_retractions(owner, (left_source, right_source))
    if not on:
        raise DefinitionError(
            f"{owner}: it has no keys. Give `on` at least one column of both sources."
        )
    for key in on:
        for source in (left_source, right_source):
            if key not in source.columns:
                raise DefinitionError(
                    f"{owner}: the key '{key}' is not a column of '{source.name}': "
                    f"{', '.join(source.columns)}."
                )
        types = [simple_type(source.columns[key]) for source in (left_source, right_source)]
        if types[0] != types[1]:
            raise DefinitionError(
                f"{owner}: the key '{key}' has the type {types[0]} in '{left_source.name}', but "
                f"{types[1]} in '{right_source.name}'. Declare it with one type in both."
            )
        if "map<" in types[0]:
            raise DefinitionError(
                f"{owner}: the key '{key}' has the type {types[0]}, which the engine can't "
                "compare. Use a key of another type."
            )
    return tuple(dict.fromkeys(on))


def paired_columns(
    name: str,
    left_source: Source,
    right_source: Source,
    keys: Sequence[str],
    rename: Mapping[str, str],
    added: Mapping[str, str],
) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Return the columns of a source whose rows combine rows of two sources.

    Args:
        rename: new names, by `source.column`.
        added: the columns that the derivation adds, with their types.

    Returns:
        All columns with their types: the keys, the left columns, the right columns, and the added
        ones. Then, for each side, its columns except the keys, mapped to their new names.
    """
    further = list[tuple[str, str]]()
    for source in (left_source, right_source):
        further += [(source.name, column) for column in own_columns(source) if column not in keys]
    names = name_columns(name, further, rename, tuple(keys) + tuple(added))
    columns = {key: simple_type(left_source.columns[key]) for key in keys}
    left_names = dict[str, str]()
    right_names = dict[str, str]()
    for (base, column), new in names.items():
        if base == left_source.name:
            left_names[column] = new
            columns[new] = simple_type(left_source.columns[column])
        else:
            right_names[column] = new
            columns[new] = simple_type(right_source.columns[column])
    columns |= added
    return columns, left_names, right_names
