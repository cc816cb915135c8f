"""Parse the derived sources of a scenario: joins, as-of joins, unions and chains."""

from collections.abc import Callable, Mapping
from typing import Any, get_args

from tidemark.define.derived.asof_join import asof_join
from tidemark.define.derived.chain import ChainRows, chain
from tidemark.define.derived.derived_source import DerivedSource, own_columns
from tidemark.define.derived.join import JOINED_AT, Between, join
from tidemark.define.derived.pairing import LINEAGE
from tidemark.define.derived.union import union
from tidemark.define.source import Source
from tidemark.define.windows import Window
from tidemark_streaming.scenario.read import definition
from tidemark_streaming.scenario.read.columns import find_source, read_kind
from tidemark_streaming.scenario.read.definition import read_window
from tidemark_streaming.scenario.read.reader import Node

_Sources = Mapping[str, Source]


def read_derived(node: Node, sources: _Sources) -> dict[str, DerivedSource]:
    """Return the derived sources by name, in the order of the file.

    Args:
        sources: the other sources of the scenario.
    """
    derived = dict[str, DerivedSource]()
    for key, value in node.read_entries("'derived'"):
        name = key.read_text("a name")
        if name in sources:
            raise key.error(f"{key} is already the name of a source: choose another name.")
        kind, options = value.read_choice("a derived source", _KINDS)
        with options.locate_errors():
            derived[name] = _KINDS[kind](name, options, {**sources, **derived})
    return derived


def _read_join(name: str, node: Node, sources: _Sources) -> DerivedSource:
    fields = node.read_fields(
        "a join",
        ("left", "right", "on", "within"),
        ("how", "allowed_lateness", "where", "event_time", "rename", "idle"),
    )
    within = _read_within(fields["within"])
    return join(
        name=name, within=within, **_read_sides(fields, sources, ("how", "where", "event_time"))
    )


def _read_asof_join(name: str, node: Node, sources: _Sources) -> DerivedSource:
    fields = node.read_fields(
        "an as-of join",
        ("left", "right", "on"),
        ("how", "allowed_lateness", "deleted", "rename", "idle"),
    )
    return asof_join(name=name, **_read_sides(fields, sources, ("how", "deleted")))


def _read_sides(
    fields: Mapping[str, Node], sources: _Sources, texts: tuple[str, ...]
) -> dict[str, Any]:
    """Return the arguments that joins and as-of joins share.

    Args:
        texts: the names of further options, whose values are texts.
    """
    left_source = find_source(fields["left"], sources)
    right_source = find_source(fields["right"], sources)
    on = [key.read_text("a key") for key in fields["on"].read_items("'on'")]
    options: dict[str, Any] = {"left": left_source, "right": right_source, "on": on}
    for option in texts:
        if option in fields:
            options[option] = fields[option].read_text(f"'{option}'")
    if "allowed_lateness" in fields:
        options["allowed_lateness"] = fields["allowed_lateness"].read_duration(
            "the allowed lateness"
        )
    options |= _read_idle(fields)
    if "rename" in fields:
        rename = dict[str, str]()
        for column, name in fields["rename"].read_entries("'rename'"):
            rename[column.read_text("a column")] = name.read_text("a column's name")
    else:
        rename = _rename_equal_columns(left_source, right_source, on)
    options["rename"] = rename
    return options


def _read_within(node: Node) -> Between | Window:
    if not node.is_list:
        return read_window(node)
    ends = node.read_items("'within'")
    if len(ends) != 2:
        raise node.error(
            f"'within' must have two ends, as in [-5 minutes, 1 hour] (got {len(ends)})."
        )
    with node.locate_errors():
        return Between(*(end.read_duration("an end of 'within'", negative=True) for end in ends))


def _rename_equal_columns(
    left_source: Source, right_source: Source, on: list[str]
) -> dict[str, str]:
    """Return the argument `rename` of a join, for columns whose names would be equal in the join.

    The keys are `SOURCE.COLUMN`, the values `l_COLUMN` for the left source and `r_COLUMN` for the
    right one. Columns are also renamed if they have the name of a column that each join adds.

    Args:
        on: the columns by which rows are joined, which the join has once.
    """
    columns = list[tuple[str, Source, str]]()
    for letter, source in (("l", left_source), ("r", right_source)):
        for column in own_columns(source):
            if column not in on:
                columns.append((letter, source, column))
    names = [column.lower() for _, _, column in columns]
    names += [JOINED_AT, *LINEAGE]
    rename = dict[str, str]()
    for letter, source, column in columns:
        if names.count(column.lower()) > 1:
            rename[f"{source.name}.{column}"] = f"{letter}_{column}"
    return rename


def _read_union(name: str, node: Node, sources: _Sources) -> DerivedSource:
    fields = node.read_fields("a union", ("of",), ("idle",))
    bases = [find_source(base, sources) for base in fields["of"].read_items("'of'")]
    return union(name=name, of=bases, **_read_idle(fields))


def _read_idle(fields: Mapping[str, Node]) -> dict[str, Any]:
    if "idle" in fields:
        return {"idle": fields["idle"].read_duration("'idle'")}
    return {}


def _read_chain(name: str, node: Node, sources: _Sources) -> DerivedSource:
    fields = node.read_fields("a chain", ("source", "transform"), ("rows", "types"))
    base = find_source(fields["source"], sources)
    rows = "final"
    if "rows" in fields:
        rows = fields["rows"].read_word("the rows of a chain", get_args(ChainRows))
    asset, _ = definition.read_transform(
        fields["transform"],
        {base.name: base},
        named=False,
        title=definition.Title(f"{name}_windows"),
    )
    types = dict[str, str]()
    if "types" in fields:
        for column, kind in fields["types"].read_entries("'types'"):
            types[column.read_text("a column")] = read_kind(kind).ddl
    return chain(name=name, of=asset, rows=rows, types=types)


_KINDS: dict[str, Callable[[str, Node, _Sources], DerivedSource]] = {
    "join": _read_join,
    "as_of": _read_asof_join,
    "union": _read_union,
    "chain": _read_chain,
}
