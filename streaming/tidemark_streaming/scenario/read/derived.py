"""Parse the derived sources of a scenario: joins and unions of its sources."""

from collections.abc import Callable, Mapping
from typing import Any

from tidemark.define.derived.derived_source import DerivedSource, own_columns
from tidemark.define.derived.join import JOINED_AT, LINEAGE, Between, Join, join
from tidemark.define.derived.union import union
from tidemark.define.source import Source
from tidemark.define.windows import Window
from tidemark_streaming.scenario.read.columns import Columns, source_types
from tidemark_streaming.scenario.read.reader import Node
from tidemark_streaming.scenario.read.window import window

_Sources = Mapping[str, Source]


def read_derived(node: Node, sources: _Sources) -> dict[str, DerivedSource]:
    """Return the derived sources by name, in the order of the file.

    Args:
        sources: the other sources of the scenario.
    """
    found = dict[str, DerivedSource]()
    for key, value in node.entries("'derived'"):
        name = key.text("a name")
        if name in sources:
            raise key.error(f"{key} is already the name of a source: choose another name.")
        kind, options = value.choice("a derived source", _KINDS)
        with options.locate_errors():
            found[name] = _KINDS[kind](name, options, {**sources, **found})
    return found


def columns_of(source: Source) -> Columns:
    """Return the columns of a source.

    Those of a join are also `l.COLUMN` and `r.COLUMN`, by the columns of its sources. The event
    time of a derived source is also `at`.
    """
    if not isinstance(source, DerivedSource):
        return Columns(source_types(source))
    aliases, derivation = {"at": source.event_time}, source.derivation
    if isinstance(derivation, Join):
        for letter, names in (("l", derivation.left_columns), ("r", derivation.right_columns)):
            own = {**names, **{key: key for key in derivation.on}}
            aliases |= {f"{letter}.{old}": new for old, new in own.items()}
    return Columns(source_types(source), aliases)


def find_source(node: Node, sources: _Sources) -> Source:
    """Return the source that a node names."""
    return sources[node.word("a source", list(sources))]


def _join(name: str, node: Node, sources: _Sources) -> DerivedSource:
    given = node.fields(
        "a join",
        ("left", "right", "on", "within"),
        ("how", "allowed_lateness", "where", "event_time", "rename"),
    )
    left, right = (find_source(given[side], sources) for side in ("left", "right"))
    on = [key.text("a key") for key in given["on"].items("'on'")]
    options: dict[str, Any] = {
        option: given[option].text(f"'{option}'")
        for option in ("how", "where", "event_time")
        if option in given
    }
    if "allowed_lateness" in given:
        options["allowed_lateness"] = given["allowed_lateness"].duration("the allowed lateness")
    if "rename" in given:
        named = given["rename"].entries("'rename'")
        rename = {old.text("a column"): new.text("a column's name") for old, new in named}
    else:
        rename = _distinguish(left, right, on)
    within = _reach(given["within"])
    return join(name=name, left=left, right=right, on=on, within=within, rename=rename, **options)


def _reach(node: Node) -> Between | Window:
    if not node.is_list:
        return window(node)
    ends = node.items("'within'")
    if len(ends) != 2:
        raise node.error(
            f"'within' must have two ends, as in [-5 minutes, 1 hour] (got {len(ends)})."
        )
    with node.locate_errors():
        return Between(*(end.duration("an end of 'within'", negative=True) for end in ends))


def _distinguish(left: Source, right: Source, on: list[str]) -> dict[str, str]:
    """Return the names `l_COLUMN` and `r_COLUMN` of columns whose names would be equal in a
    join."""
    columns = [
        (letter, source.name, column)
        for letter, source in (("l", left), ("r", right))
        for column in own_columns(source)
        if column not in on
    ]
    names = [*(column.lower() for _, _, column in columns), JOINED_AT, *LINEAGE]
    return {
        f"{source}.{column}": f"{letter}_{column}"
        for letter, source, column in columns
        if names.count(column.lower()) > 1
    }


def _union(name: str, node: Node, sources: _Sources) -> DerivedSource:
    given = node.fields("a union", ("of",))
    return union(name=name, of=[find_source(each, sources) for each in given["of"].items("'of'")])


_KINDS: dict[str, Callable[[str, Node, _Sources], DerivedSource]] = {
    "join": _join,
    "union": _union,
}
