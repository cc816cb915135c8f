"""Random scenarios: every window, trigger, accumulation and watermark, on few values.

Times are on a coarse grid, and sometimes slightly off it, so that events coincide with window ends,
the watermark and each other. Each part has its own strategy. Pass another strategy to draw narrower
scenarios, as in `scenarios(windows=SESSIONS, late=COUNT, keys=st.just(["name"]))`.
"""

from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st

Part = dict[str, Any]
Parts = st.SearchStrategy[Part]

COLUMNS = {"ts": "timestamp", "name": "string", "part": "int", "v": "decimal(10,2)"}
AGGREGATES = {
    "n": "count",
    "total": {"sum": "v"},
    "top": {"max": "v"},
    "values": {"collect": "v"},
    "firstv": {"first": "v"},
    "lastv": {"last": "v"},
}
VALUES = ("-1.50", "0.00", "1.11", "2.00", "10.25", None)

BEGINNINGS = ("1970-01-01", "1969-12-31 23:59:40", "2024-02-29")
"""The first times of scenarios in UTC: on both sides of the epoch, and far from it."""

ZONES = {
    "UTC": ("1969-12-30", "2024-12-30"),
    "Europe/Paris": ("2024-03-30", "2024-10-26"),
    "America/New_York": ("2024-03-09", "2024-11-02"),
    "Asia/Kathmandu": ("2023-12-30", "1969-12-30"),
    # Its clock changes were at midnight.
    "America/Sao_Paulo": ("2018-11-03", "2018-02-17"),
}
"""Time zones with first times: shortly before a clock change or the end of a year."""

STEPS = {"day": 3_600, "week": 6 * 3_600, "month": 86_400, "year": 12 * 86_400}
"""The grid step in seconds by calendar unit; it is one for other windows."""


def _window(kind: str, offset: bool = True, **lengths: list[str]) -> Parts:
    """Return a strategy for windows of a kind, with lengths from the same position of each list."""
    rows = zip(*lengths.values(), strict=True)
    specs = st.sampled_from([dict(zip(lengths, row, strict=True)) for row in rows])
    offsets = [{}, {"offset": "1 second"}, {"offset": "-1500 milliseconds"}] if offset else [{}]
    return st.tuples(specs, st.sampled_from(offsets)).map(lambda two: {kind: two[0] | two[1]})


def _seconds(*numbers: int) -> list[str]:
    return [f"{n} seconds" for n in numbers]


TUMBLING = _window("tumbling", size=[*_seconds(1, 5, 10), "2500 milliseconds"])
SLIDING_EVENLY = _window("sliding", size=_seconds(4, 5, 9), slide=_seconds(2, 5, 3))
SLIDING_UNEVENLY = _window("sliding", size=_seconds(5, 10, 7), slide=_seconds(2, 4, 6))
CUMULATING = _window("cumulating", size=_seconds(6, 9, 10, 4), step=_seconds(2, 3, 5, 4))
SESSIONS = _window("session", offset=False, gap=[*_seconds(1, 2, 5), "2500 milliseconds"])
CALENDAR = st.builds(
    lambda unit, zone: {"calendar": {"unit": unit} | ({"timezone": zone} if zone else {})},
    st.sampled_from(list(STEPS)),
    st.sampled_from([*ZONES, None]),
)
GLOBAL: Parts = st.just({"global": {}})
SLIDING = st.one_of(SLIDING_EVENLY, SLIDING_UNEVENLY)
# Sampled, because `one_of` flattens its parts and would prefer kinds with many parts.
WINDOWS = st.sampled_from(
    [TUMBLING, SESSIONS, SLIDING, SESSIONS, CUMULATING, CALENDAR, GLOBAL]
).flatmap(lambda kind: kind)

ARRIVAL: Parts = st.just({"arrival": {}})
COUNT: Parts = st.integers(1, 3).map(lambda n: {"count": n})
EVERY: Parts = st.sampled_from(_seconds(2, 3, 5)).map(lambda interval: {"every": interval})
ABSENT: st.SearchStrategy[None] = st.none()
FIRINGS = st.one_of(ABSENT, ARRIVAL, COUNT, EVERY)

BOUNDED: Parts = st.sampled_from(_seconds(0, 1, 2, 3, 6)).map(
    lambda bound: {"bounded_out_of_orderness": bound}
)
MANUAL: Parts = st.just({"manual": {}})
MONOTONOUS: Parts = st.just({"monotonous": {}})
PERFECT: Parts = st.just({"perfect": {}})
IDLES = st.sampled_from(_seconds(1, 3, 8))
IDLE: Parts = st.one_of(
    st.builds(
        lambda bound, idle: {"bounded_out_of_orderness": {"bound": bound, "idle": idle}},
        st.sampled_from(_seconds(0, 1, 3)),
        IDLES,
    ),
    IDLES.map(lambda idle: {"monotonous": {"idle": idle}}),
)
"""Strategies that heartbeats move."""
WATERMARKS = st.one_of(BOUNDED, MANUAL, MANUAL, MONOTONOUS, BOUNDED, PERFECT, IDLE)

ACCUMULATIONS = st.sampled_from(["accumulating", "discarding", "retracting"])
LATENESSES = st.sampled_from(_seconds(0, 1, 4, 10, 60))
KEYS = st.sampled_from([["name"], [], ["name", "part"]])
CLOCKS = st.sampled_from([None, "2024-01-01", "1969-12-31 23:59:58.5"])
BOOLEANS = st.booleans()
AGAIN: Parts = st.builds(
    lambda by, within: {"by": by, "within": within},
    st.sampled_from(["v", ["name", "part"], ["ts", "name"]]),
    st.sampled_from(_seconds(0, 1, 3, 60)),
)
"""Deduplication keys; with few values, many events are duplicates."""
UNIQUES: st.SearchStrategy[Part | None] = st.one_of(ABSENT, AGAIN)


@st.composite
def scenarios(
    draw: st.DrawFn,
    *,
    windows: Parts = WINDOWS,
    early: st.SearchStrategy[Part | None] = FIRINGS,
    late: st.SearchStrategy[Part | None] = FIRINGS,
    watermarks: Parts = WATERMARKS,
    accumulations: st.SearchStrategy[str] = ACCUMULATIONS,
    latenesses: st.SearchStrategy[str] = LATENESSES,
    keys: st.SearchStrategy[list[str]] = KEYS,
    opens: st.SearchStrategy[bool] = BOOLEANS,
    uniques: st.SearchStrategy[Part | None] = UNIQUES,
    clock_starts: st.SearchStrategy[str | None] = CLOCKS,
    most_arrivals: int = 8,
    most_rows: int = 4,
    name: str = "by-chance",
) -> Part:
    """Draw a scenario without `expect`, with 1 to `most_arrivals` arrivals and heartbeats.

    Calendar windows stretch all durations together with the grid.
    """
    window, watermark = draw(windows), draw(watermarks)
    step, beginnings = 1, BEGINNINGS
    if "calendar" in window:
        step = STEPS[window["calendar"]["unit"]]
        beginnings = ZONES[window["calendar"].get("timezone", "UTC")]
    beginning = datetime.fromisoformat(draw(st.sampled_from(beginnings)))
    transform: Part = {
        "window": window,
        "keys": draw(keys),
        "allowed_lateness": _stretched(draw(latenesses), step),
        "accumulation": draw(accumulations),
        "aggregates": AGGREGATES,
    }
    firings = {"early": draw(early), "late": draw(late)}
    if trigger := {when: firing for when, firing in firings.items() if firing is not None}:
        transform["trigger"] = _stretched(trigger, step)
    if unique := draw(uniques):
        transform["deduplicate"] = unique | {"within": _stretched(unique["within"], step)}
    clock = st.sampled_from(_seconds(1, 2, 4, 7)).map(lambda by: {"clock": _stretched(by, step)})
    # Hypothesis shrinks to one row; an arrival without rows comes last.
    sizes = st.sampled_from([*range(1, most_rows + 1), 0])
    items: list[Part] = []
    for number in range(draw(st.integers(1, most_arrivals))):
        # Time advances by three steps per arrival, so events lie before and after it.
        now = beginning + timedelta(seconds=3 * number * step)
        heartbeat = _times(now, step, -8, 4).map(lambda time: {"watermark": time})
        beat = st.one_of(clock, heartbeat, heartbeat) if "manual" in watermark else clock
        items += draw(st.lists(beat, max_size=2))
        items.append({"rows": [draw(_rows(now, step)) for _ in range(draw(sizes))]})
    items += draw(st.lists(clock, max_size=1))
    idle = "idle" in str(watermark)
    # A heartbeat has an effect only if the clock and the event times are near each other.
    clock_start = str(beginning) if idle else draw(clock_starts)
    return {
        "name": name,
        "source": {
            "event_time": "ts",
            "columns": COLUMNS,
            "watermark": _stretched(watermark, step),
            **({"heartbeat": "1 second"} if idle else {}),
        },
        **({} if clock_start is None else {"clock_start": clock_start}),
        "arrivals": items,
        "open": draw(opens),
        "transform": transform,
    }


def _rows(now: datetime, step: int) -> Parts:
    time = _times(now, step, -12, 4)
    return st.fixed_dictionaries(
        {
            "ts": st.integers(0, 15).flatmap(lambda chance: time if chance else st.none()),
            "name": st.sampled_from(["a", "a", "b", None]),
            "part": st.sampled_from([1, 1, 2, None]),
            "v": st.sampled_from(VALUES),
        }
    )


def _times(now: datetime, step: int, least: int, most: int) -> st.SearchStrategy[str]:
    """Return a strategy for times on the grid around `now` or slightly off it.

    On a calendar grid, times may also be some hours off.
    """
    beside = [0, 0, 0, 0, 0, -0.000001, 0.000001, 0.25]
    if step > 1:
        beside += [hours * 3_600 for hours in (-5.75, -3, -2, -1, 1, 2, 3, 4, 5)]
    return st.builds(
        lambda steps, more: str(now + timedelta(seconds=steps * step + more)),
        st.integers(least, most),
        st.sampled_from(beside),
    )


def _stretched(told: Any, by: int) -> Any:  # noqa: ANN401
    """Multiply every duration in a value by a factor."""
    if isinstance(told, dict):
        return {name: _stretched(part, by) for name, part in told.items()}
    if isinstance(told, str):
        number, unit = told.split()
        return f"{int(number) * by} {unit}"
    return told
