"""The bars in a scenario's picture: the windows of the result, each with its panes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.base.instants import BEGINNING, INFINITY, parse_instant
from tidemark_streaming.scenario.draw.classified_events import ClassifiedEvent, Span
from tidemark_streaming.scenario.draw.event_logs import Step
from tidemark_streaming.scenario.draw.firings import Firings, find_firings
from tidemark_streaming.scenario.read.parse import Scenario
from tidemark_streaming.scenario.read.values import to_short_text, truncate

_LONGEST = 60


@dataclass(frozen=True)
class _PaneLabel:
    """A pane under the bar of its window; `arrival` fired the pane, and is None if unknown."""

    timing: str
    values: str
    arrival: int | None

    def __str__(self) -> str:
        text = self.timing
        if self.arrival is not None:
            text += f" #{self.arrival}"
        if self.values:
            text += f": {self.values}"
        return text


@dataclass(frozen=True)
class Bar:
    """A window of a key, as a picture draws it.

    Args:
        published: the window's values; None for a session that was merged into another.
        timing: the timing of the window's newest pane.
        final: true if the window can no longer change.
    """

    key: str
    span: Span
    published: str | None
    timing: str
    final: bool
    panes: tuple[_PaneLabel, ...]

    @property
    def caption(self) -> str:
        """The text in the bar."""
        if self.published is None:
            return "(merged into another)"
        if self.final:
            return self.published
        return f"{self.published} (not final)"


def list_bars(
    scenario: Scenario,
    result: Mapping[str, Any],
    arrivals: list[Step],
    events: list[ClassifiedEvent],
) -> list[Bar]:
    """Return the windows of a result, sorted by key and start, including deleted windows that had
    panes."""
    keys = scenario.transform.keys
    published = {_identify_window(row, keys): row for row in result["windows"]}
    panes: dict[tuple[Span, tuple[Any, ...]], list[Mapping[str, Any]]] = {}
    for row in result["panes"]:
        panes.setdefault(_identify_window(row, keys), []).append(row)
    bars = list[Bar]()
    for span, key in {**published, **panes}:
        row = published.get((span, key))
        pane_rows = panes.get((span, key), [])
        key_events = [event for event in events if event.key == key]
        firings = Firings()
        # Without arrivals or with unknown keys, the scenario does not determine the firings.
        if scenario.arrivals and not scenario.prepares_rows:
            firings = find_firings(scenario, arrivals, key_events, span)
        values = None
        is_final = False
        if row is not None:
            values = _describe_values(row, scenario, named=True)
            is_final = row["final"]
        labels = _pane_labels(pane_rows, firings, scenario, values)
        key_label = truncate(" ".join(map(to_short_text, key)), 30)
        newest = row or pane_rows[-1]
        bars.append(Bar(key_label, span, values, newest["timing"], is_final, labels))
    return sorted(bars, key=lambda bar: (bar.key, bar.span))


def arrange_in_lanes(
    bars: Sequence[Bar], extent: Callable[[Bar], tuple[float, float]]
) -> list[list[Bar]]:
    """Arrange the bars of one key in lanes. A bar is in the first lane in which it overlaps no bar.

    Args:
        extent: returns where a bar begins and ends, including its text.
    """
    rows: list[list[Bar]] = []
    for bar in sorted(bars, key=extent):
        begin, _ = extent(bar)
        for lane in rows:
            if extent(lane[-1])[1] <= begin:
                lane.append(bar)
                break
        else:
            rows.append([bar])
    return rows


def group_by_key(bars: Sequence[Bar]) -> dict[str, list[Bar]]:
    """Return the bars of each key, in the order of the bars."""
    grouped: dict[str, list[Bar]] = {}
    for bar in bars:
        grouped.setdefault(bar.key, []).append(bar)
    return grouped


def _pane_labels(
    rows: list[Mapping[str, Any]],
    arrivals_by_timing: Mapping[str, list[int]],
    scenario: Scenario,
    published: str | None,
) -> tuple[_PaneLabel, ...]:
    """Return the panes of a window, each with the values that it retracts and adds. If a published
    window has only one pane, the values are omitted, because the bar shows them.

    Args:
        rows: the rows of the panes.
        arrivals_by_timing: the numbers of the arrivals at which the window fired, by timing.
        published: the text of the window's values; None for a session that was merged into another.
    """
    values: dict[int, list[str]] = {}
    timings: dict[int, str] = {}
    for row in rows:
        text = _describe_values(row, scenario, named=False)
        if row["retraction"]:
            text = negate_text(text)
        values.setdefault(row["pane"], []).append(text)
        timings[row["pane"]] = row["timing"]
    arrivals = _match_arrivals(rows, timings, arrivals_by_timing)
    is_in_bar = published is not None and len(rows) == 1
    labels = list[_PaneLabel]()
    for pane, texts in sorted(values.items()):
        text = "" if is_in_bar else truncate(", ".join(texts), _LONGEST)
        labels.append(_PaneLabel(timings[pane], text, arrivals.get(pane)))
    return tuple(labels)


def _match_arrivals(
    rows: list[Mapping[str, Any]],
    timings: Mapping[int, str],
    arrivals_by_timing: Mapping[str, list[int]],
) -> dict[int, int]:
    """Return the arrival that fired each pane, if a timing has as many panes as firings."""
    panes_by_timing = dict[str, list[int]]()
    for row in rows:
        if not row["retraction"]:
            panes_by_timing.setdefault(timings[row["pane"]], []).append(row["pane"])
    arrivals = dict[int, int]()
    for timing, panes in panes_by_timing.items():
        fired = arrivals_by_timing.get(timing, [])
        if len(panes) == len(fired):
            arrivals |= zip(panes, fired, strict=True)
    return arrivals


def negate_text(values: str) -> str:
    """Return the text of retracted values, with a minus sign."""
    if " " in values or values.startswith("-"):
        return f"-({values})"
    return f"-{values}"


def _describe_values(row: Mapping[str, Any], scenario: Scenario, *, named: bool) -> str:
    names = list(scenario.transform.aggregates)
    if len(names) == 1 and not named:
        return to_short_text(row[names[0]])
    texts = [f"{name} {to_short_text(row[name])}" for name in names]
    return truncate(", ".join(texts), _LONGEST)


def _identify_window(row: Mapping[str, Any], keys: tuple[str, ...]) -> tuple[Span, tuple[Any, ...]]:
    start = row["window_start"]
    end = row["window_end"]
    span = (
        BEGINNING if start is None else parse_instant(start),
        INFINITY if end == "+infinity" else parse_instant(end),
    )
    return span, tuple(row[key] for key in keys)
