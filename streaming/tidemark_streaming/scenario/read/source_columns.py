"""The columns of a scenario's sources, and the sources that it names."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.pairing import Pairing
from tidemark.define.source import Source
from tidemark_streaming.scenario.read.columns import Kind, simple_kind, unwritable
from tidemark_streaming.scenario.read.reader import Node


@dataclass(frozen=True)
class Columns:
    """The columns of a source.

    Args:
        types: their types, by name.
        aliases: further names that a scenario may use for them.
    """

    types: Mapping[str, Kind]
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])

    def find(self, node: Node, what: str = "a column") -> str:
        """Return the name of the column that a node names.

        Raises:
            ScenarioError: the source does not have the column.
        """
        name = node.text(what)
        name = name if name in self.types else self.aliases.get(name, name)
        if name not in self.types:
            raise node.error(
                f"{node} is not a column of the source; there are {', '.join(self.types)}."
            )
        return name


def columns_of(source: Source) -> Columns:
    """Return the columns of a source.

    Those of a join are also `l.COLUMN` and `r.COLUMN`, by the columns of its sources. The event
    time of a derived source is also `at`.
    """
    if not isinstance(source, DerivedSource):
        return Columns(_types_of(source))
    aliases, derivation = {"at": source.event_time}, source.derivation
    if isinstance(derivation, Pairing):
        for letter, names in (("l", derivation.left_columns), ("r", derivation.right_columns)):
            own = {**names, **{key: key for key in derivation.on}}
            aliases |= {f"{letter}.{old}": new for old, new in own.items()}
    return Columns(_types_of(source), aliases)


def find_source(node: Node, sources: Mapping[str, Source]) -> Source:
    """Return the source that a node names."""
    return sources[node.word("a source", list(sources))]


def _types_of(source: Source) -> dict[str, Kind]:
    """Return the types of a source's columns, which may be types without a form in a scenario."""
    return {name: simple_kind(ddl) or unwritable(ddl) for name, ddl in source.columns.items()}
