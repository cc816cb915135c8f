"""Compare a result with the expected one, or with another result.

Rows may have any order. Each row of one side is matched with an equal row of the other. The
remaining rows are paired by similarity, so that a difference appears as a wrong value rather than
as one missing and one extra row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from tidemark_streaming.scenario.read.expectation import Expect
from tidemark_streaming.scenario.read.values import is_equal, to_display

_WHICH = ("window_start", "window_end", "pane", "retraction")
"""Columns that identify a row. An equal value in such a column counts twice as similarity."""

_Row = Mapping[str, Any]
_NONE: Mapping[str, float] = {}


@dataclass(frozen=True)
class Difference:
    """A row that differs.

    Args:
        part: `windows`, `panes` or `late`; `derived` or `unjoined` with the name of the derived
            source; `watermark` for the watermarks of two results.
        expected: the expected row, or the batch's if two results are compared; None for an extra
            row.
        actual: the actual row, or the stream's if two results are compared; None for a missing row.
        columns: the columns that differ, if both rows exist.
    """

    part: str
    expected: _Row | None
    actual: _Row | None
    columns: tuple[str, ...] = ()


def rows_by_part(result: _Row) -> dict[str, Any]:
    """Return the rows of a result or an expectation, by part.

    The parts are `windows`, `panes`, `late` and, for each derived source, `derived NAME` and
    `unjoined NAME`.
    """
    by_name = {part: result[part] for part in ("windows", "panes", "late") if part in result}
    for part in ("derived", "unjoined"):
        by_name |= {f"{part} {name}": rows for name, rows in result.get(part, {}).items()}
    return by_name


def find_differences(
    expect: Expect, result: _Row, slack: Mapping[str, float] = _NONE
) -> list[Difference]:
    """Return the differences between a result and the expected one; empty if there are none.

    Args:
        slack: the allowed difference between doubles by column, as in `Scenario.slack`.
    """
    actual = rows_by_part(result)
    return [
        difference
        for part, rows in rows_by_part(vars(expect)).items()
        if rows is not None
        for difference in _compare_rows(part, rows, actual[part], slack)
    ]


def compare_results(
    batch: _Row, stream: _Row, slack: Mapping[str, float] = _NONE
) -> list[Difference]:
    """Return the differences between the results of a batch and a stream; empty if there are none.
    `slack` is as in `find_differences`."""
    stream_parts = rows_by_part(stream)
    differences = [
        d
        for part, rows in rows_by_part(batch).items()
        for d in _compare_rows(part, rows, stream_parts[part], slack)
    ]
    expected, actual = ({"watermark": result["watermark"]} for result in (batch, stream))
    return differences + _compare_rows("watermark", [expected], [actual], slack)


def tabulate_differences(
    differences: Sequence[Difference],
    *,
    title: str = "",
    sides: tuple[str, str] = ("expected", "came"),
) -> Table:
    """Return the differences as a table with row, column, expected value and actual value.

    Args:
        sides: the headings of the columns with the expected and the actual values.
    """
    table = Table(title=Text(title) if title else None, title_justify="left", show_lines=True)
    styles = {"part": None, "row": None, "column": "bold", sides[0]: "green", sides[1]: "red"}
    for name, style in styles.items():
        table.add_column(name, style=style, overflow="fold")
    for d in differences:
        if d.expected is None or d.actual is None:
            row_texts = ["nothing" if r is None else _to_text(r) for r in (d.expected, d.actual)]
            rows = [["", "", *row_texts]]
        else:
            agreed = _to_text({k: v for k, v in d.expected.items() if k not in d.columns})
            rows = [
                [agreed, c, to_display(d.expected[c]), to_display(d.actual[c])] for c in d.columns
            ]
        for cells in rows:
            table.add_row(d.part, *(Text(cell) for cell in cells))
    return table


def _compare_rows(
    part: str, expected: Sequence[_Row], actual: Sequence[_Row], slack: Mapping[str, float]
) -> list[Difference]:
    matched = _match_rows(expected, actual, slack)
    right = set(matched.values())
    missing = [e for i, e in enumerate(expected) if i not in matched]
    extra = [a for j, a in enumerate(actual) if j not in right]
    pairs = sorted(
        (
            (_measure_likeness(e, a, slack), i, j)
            for i, e in enumerate(missing)
            for j, a in enumerate(extra)
        ),
        key=lambda pair: (-pair[0], pair[1], pair[2]),
    )
    paired: dict[int, int] = {}
    for likeness, i, j in pairs:
        if (likeness or len(pairs) == 1) and i not in paired and j not in paired.values():
            paired[i] = j
    differences = [
        Difference(part, e, extra[paired[i]], _find_unequal_columns(e, extra[paired[i]], slack))
        if i in paired
        else Difference(part, e, None)
        for i, e in enumerate(missing)
    ]
    left = [a for j, a in enumerate(extra) if j not in paired.values()]
    return [*differences, *(Difference(part, None, a) for a in left)]


def _match_rows(
    expected: Sequence[_Row], actual: Sequence[_Row], slack: Mapping[str, float]
) -> dict[int, int]:
    """Return as many pairs of equal rows as possible, as indexes in `expected` and `actual`.

    This is maximum bipartite matching: an expected row that names few columns must not take the
    only match of an expected row that names more columns.
    """
    actual_of: dict[int, int] = {}
    expected_of: dict[int, int] = {}
    for begin, _ in enumerate(expected):
        reached: dict[int, int] = {}
        waiting = [begin]
        free = None
        while waiting and free is None:
            i = waiting.pop()
            for j in sorted(range(len(actual)), key=lambda j: (j in expected_of, j != i)):
                if j in reached or _find_unequal_columns(expected[i], actual[j], slack):
                    continue
                reached[j] = i
                if j not in expected_of:
                    free = j
                    break
                waiting.append(expected_of[j])
        while free is not None:
            i = reached[free]
            j = free
            free = actual_of.get(i)
            actual_of[i] = j
            expected_of[j] = i
    return actual_of


def _find_unequal_columns(
    expected: _Row, actual: _Row, slack: Mapping[str, float]
) -> tuple[str, ...]:
    return tuple(
        c for c, value in expected.items() if not is_equal(value, actual[c], slack.get(c, 0.0))
    )


def _measure_likeness(expected: _Row, actual: _Row, slack: Mapping[str, float]) -> int:
    unlike = _find_unequal_columns(expected, actual, slack)
    return sum(2 if c in _WHICH else 1 for c in expected if c not in unlike)


def _to_text(row: _Row) -> str:
    return "\n".join(f"{column}={to_display(value)}" for column, value in row.items()) or "any"
