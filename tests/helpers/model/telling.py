"""A selection of random examples that together cover most of the model."""

import os
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from helpers.model.histories import Item, histories
from helpers.model.oracle import Row, simulate
from helpers.model.random_scenarios import scenarios

LONG = int(os.environ.get("TIDEMARK_TEST_EXAMPLES", "0"))
"""The number of random examples to test; by default tests use a small, informative selection."""

_DRAWN = 300
_LEAST = 5
"""The minimum number of arrivals of an informative example."""


class Example(NamedTuple):
    """A scenario with a history of an asset.

    Args:
        told: the scenario.
        history: see `histories`.
        seed: orders the events of an arrival if more than one order is valid.
    """

    told: Row
    history: list[Item]
    seed: int


_EXAMPLES = st.builds(Example, scenarios(most_arrivals=5), histories(), st.integers(0, 99))


def drawn(count: int, *, alike: bool = False) -> list[Example]:
    """Return random examples, the first of them trivial; with `alike`, always the same ones."""
    found: list[Example] = []

    @settings(
        max_examples=count,
        deadline=None,
        derandomize=alike,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(example=_EXAMPLES)
    def keep(example: Example) -> None:
        found.append(example)

    keep()
    return found


def telling(count: int) -> list[Example]:
    """Return examples, each with the most new features for its cost."""
    examples = enumerate(drawn(_DRAWN, alike=True))
    left = {n: example for n, example in examples if len(example.told["arrivals"]) >= _LEAST}
    shown = {number: _shows(example) for number, example in left.items()}
    seen: set[str] = set()
    chosen: list[Example] = []
    for _ in range(count):
        best = max(left, key=lambda n: len(shown[n] - seen) / _cost(left[n]))
        seen |= shown[best]
        chosen.append(left.pop(best))
    return chosen


def _cost(example: Example) -> float:
    """Return the approximate time of the engine in seconds."""
    return 8 + len(example.told["arrivals"]) + 2 * len(example.history)


def _shows(example: Example) -> set[str]:
    transform, found = example.told["transform"], simulate(example.told)
    (kind,), (watermark,) = transform["window"], example.told["source"]["watermark"]
    trigger: dict[str, Any] = {"late": {"arrival": {}}} | transform.get("trigger", {})
    seen = {kind, watermark, *(what for item in example.history for what in item)}
    for pane in found["panes"]:
        (how,) = trigger.get(pane["timing"].lower(), ["end"])
        seen |= {f"{kind} {pane['timing']}", f"{transform['accumulation']} {how}"}
        seen |= {f"{pane['timing']} {how}", f"{kind} takes back {pane['retraction']}"}
        if pane["n"] == 0:
            seen.add("empty pane")
    for row in found["late"]:
        seen.add("no event time" if row["ts"] is None else f"{kind} too late")
    for row in found["windows"]:
        nameless = any(row[key] is None for key in transform["keys"])
        seen |= {
            f"final {row['final']}",
            f"nameless {nameless}",
            f"{kind} {row['late_events'] > 0}",
        }
    return seen | ({"duplicates"} if "deduplicate" in transform else set())
