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
    """A row in which two results, or a result and the expectation, differ.

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
    by_name = dict[str, Any]()
    for part in ("windows", "panes", "late"):
        if part in result:
            by_name[part] = result[part]
    for part in ("derived", "unjoined"):
        for name, rows in result.get(part, {}).items():
            by_name[f"{part} {name}"] = rows
    return by_name


def find_differences(
    expect: Expect, result: _Row, slack: Mapping[str, float] = _NONE
) -> list[Difference]:
    """Return the differences between a result and the expected one; empty if there are none.

    Args:
        slack: the allowed difference between doubles by column, as in `Scenario.slack`.
    """
    actual = rows_by_part(result)
    differences = list[Difference]()
    for part, rows in rows_by_part(vars(expect)).items():
        if rows is not None:
            differences += _compare_rows(part, rows, actual[part], slack)
    return differences


def compare_results(
    batch: _Row, stream: _Row, slack: Mapping[str, float] = _NONE
) -> list[Difference]:
    """Return the differences between the results of a batch and a stream; empty if there are none.
    `slack` is as in `find_differences`."""
    stream_parts = rows_by_part(stream)
    differences = list[Difference]()
    for part, rows in rows_by_part(batch).items():
        differences += _compare_rows(part, rows, stream_parts[part], slack)
    expected = {"watermark": batch["watermark"]}
    actual = {"watermark": stream["watermark"]}
    differences += _compare_rows("watermark", [expected], [actual], slack)
    return differences


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
    for difference in differences:
        for cells in _list_cells(difference):
            table.add_row(*map(Text, cells))
    return table


def _list_cells(difference: Difference) -> list[list[str]]:
    """Return the lines of a difference in a table: one for each column that differs."""
    part = difference.part
    expected = difference.expected
    actual = difference.actual
    if expected is None or actual is None:
        return [[part, "", "", _to_text(expected), _to_text(actual)]]
    agreed = {name: expected[name] for name in expected if name not in difference.columns}
    lines = list[list[str]]()
    for name in difference.columns:
        values = [to_display(expected[name]), to_display(actual[name])]
        lines.append([part, _to_text(agreed), name, *values])
    return lines


def _compare_rows(
    part: str, expected: Sequence[_Row], actual: Sequence[_Row], slack: Mapping[str, float]
) -> list[Difference]:
    matched = _match_rows(expected, actual, slack)
    matched_actual = set(matched.values())
    missing = [row for i, row in enumerate(expected) if i not in matched]
    extra = [row for j, row in enumerate(actual) if j not in matched_actual]
    paired = _pair_similar_rows(missing, extra, slack)
    differences = list[Difference]()
    for i, row in enumerate(missing):
        if i in paired:
            actual_row = extra[paired[i]]
            columns = _find_unequal_columns(row, actual_row, slack)
            differences.append(Difference(part, row, actual_row, columns))
        else:
            differences.append(Difference(part, row, None))
    paired_extra = set(paired.values())
    for j, row in enumerate(extra):
        if j not in paired_extra:
            differences.append(Difference(part, None, row))
    return differences


def _pair_similar_rows(
    missing: Sequence[_Row], extra: Sequence[_Row], slack: Mapping[str, float]
) -> dict[int, int]:
    """Return pairs of similar rows, the most similar first, as indexes in `missing` and `extra`."""
    candidates = list[tuple[int, int, int]]()
    for i, expected in enumerate(missing):
        for j, actual in enumerate(extra):
            candidates.append((-_measure_likeness(expected, actual, slack), i, j))
    paired: dict[int, int] = {}
    for negative_likeness, i, j in sorted(candidates):
        # Two rows without an equal value are a pair only if there are no others.
        is_similar = negative_likeness < 0 or len(candidates) == 1
        if is_similar and i not in paired and j not in paired.values():
            paired[i] = j
    return paired


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
    unequal = list[str]()
    for name, value in expected.items():
        if not is_equal(value, actual[name], slack.get(name, 0.0)):
            unequal.append(name)
    return tuple(unequal)


def _measure_likeness(expected: _Row, actual: _Row, slack: Mapping[str, float]) -> int:
    unequal = _find_unequal_columns(expected, actual, slack)
    likeness = 0
    for name in expected:
        if name not in unequal:
            likeness += 2 if name in _WHICH else 1
    return likeness


def _to_text(row: _Row | None) -> str:
    if row is None:
        return "nothing"
    lines = [f"{column}={to_display(value)}" for column, value in row.items()]
    return "\n".join(lines) or "any"
