"""Parse the derived sources of a scenario: joins, as-of joins, unions, chains and row assets."""

from collections.abc import Callable, Mapping
from typing import Any, get_args

from tidemark.define.derived.asof_join import asof_join
from tidemark.define.derived.chain import ChainRows, chain
from tidemark.define.derived.derived_source import DerivedSource, own_columns
from tidemark.define.derived.join import JOINED_AT, Between, join
from tidemark.define.derived.pairing import LINEAGE
from tidemark.define.derived.row_asset import make_row_asset
from tidemark.define.derived.union import union
from tidemark.define.row_function import make_row_function
from tidemark.define.source import Source
from tidemark.define.windows import Window
from tidemark_streaming.scenario.read import definition
from tidemark_streaming.scenario.read.columns import find_source, read_kind
from tidemark_streaming.scenario.read.definition import read_window
from tidemark_streaming.scenario.read.reader import Node, ScenarioError

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
    fields = node.read_fields("a chain", ("source", "transform"), ("asset", "rows", "types"))
    base = find_source(fields["source"], sources)
    rows = "final"
    if "rows" in fields:
        rows = fields["rows"].read_word("the rows of a chain", get_args(ChainRows))
    asset_name = f"{name}_windows"
    if "asset" in fields:
        asset_name = fields["asset"].read_text("the name of an asset")
    title = definition.Title(asset_name, description="", accumulation=None)
    asset, _ = definition.read_transform(
        fields["transform"], {base.name: base}, named=False, title=title
    )
    types = dict[str, str]()
    if "types" in fields:
        types = _read_types(fields["types"], "'types'")
    return chain(name=name, of=asset, rows=rows, types=types)


def _read_row_asset(name: str, node: Node, sources: _Sources) -> DerivedSource:
    fields = node.read_fields("a row asset", ("source",), ("where", "computed", "columns"))
    base = find_source(fields["source"], sources)
    condition = None
    if "where" in fields:
        condition = _read_expression(fields["where"], base)
    computed = dict[str, str]()
    if "computed" in fields:
        for column, expression in fields["computed"].read_entries("'computed'"):
            column_name = column.read_text("a column's name")
            if column_name.lower() in map(str.lower, base.columns):
                raise column.error(
                    f"{column} is already a column of source '{base.name}': choose another name."
                )
            computed[column_name] = _read_expression(expression, base)
    columns = None
    if "columns" in fields:
        columns = _read_types(fields["columns"], "'columns'")
        for column in columns:
            if column not in {**base.columns, **computed}:
                raise fields["columns"].error(
                    f"'{column}' is neither computed nor a column of source '{base.name}'; its "
                    f"columns are {', '.join(base.columns)}."
                )
    for column in computed:
        if column not in (columns or {}):
            raise fields["computed"].error(
                f"the computed column '{column}' needs a type: add 'columns', with the types of "
                f"all columns to keep, such as {{{base.event_time}: timestamp, {column}: string}}."
            )
    return make_row_asset(name, base, make_row_function(condition, computed), columns)


def _read_types(node: Node, subject: str) -> dict[str, str]:
    """Return the types of columns by name."""
    types = dict[str, str]()
    for column, kind in node.read_entries(subject):
        types[column.read_text("a column")] = read_kind(kind).ddl
    return types


def _read_expression(node: Node, source: Source) -> str:
    """Return a SQL expression over the columns of a source."""
    # sqlglot takes a third of a second to load, which texts without SQL need not wait for.
    from tidemark.define.sql.aggregate_call import AGGREGATES
    from tidemark.define.sql.expression import read_expression
    from tidemark.define.sql.sql_text import SqlError, SqlText

    text = SqlText(node.read_text("an expression"), node.locate_text)
    try:
        return read_expression(text.phrase, source, AGGREGATES)
    except SqlError as error:
        raise ScenarioError(str(error)) from None


_KINDS: dict[str, Callable[[str, Node, _Sources], DerivedSource]] = {
    "join": _read_join,
    "as_of": _read_asof_join,
    "union": _read_union,
    "chain": _read_chain,
    "rows": _read_row_asset,
}
