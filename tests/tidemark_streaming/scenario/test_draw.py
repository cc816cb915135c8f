"""Drawings of a scenario and its result, as text and as SVG."""

import math
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from helpers.model import derived_oracle
from helpers.model.oracle import simulate
from helpers.model.random_derived import random_derived_scenario
from helpers.model.random_scenarios import scenarios
from helpers.suite.pages import ROOT
from tidemark.base.instants import INFINITY, format_instant
from tidemark_streaming.scenario.draw.classified_events import NO_TIME, TOO_LATE, classify_events
from tidemark_streaming.scenario.draw.event_logs import event_logs, list_steps
from tidemark_streaming.scenario.draw.text import WIDTH, draw_svg, draw_text
from tidemark_streaming.scenario.draw.timeline import create_timeline
from tidemark_streaming.scenario.read.parse import Scenario, load_scenario

OWN = ROOT / "tests" / "scenarios"
DERIVED = ROOT / "tests" / "cases" / "derived"
SVG = "{http://www.w3.org/2000/svg}"


def run(path: Path) -> tuple[Scenario, dict[str, Any]]:
    content = yaml.safe_load(path.read_text())
    oracle = derived_oracle.simulate if "sources" in content else simulate
    return load_scenario(path), oracle(content)


def own(name: str) -> tuple[Scenario, dict[str, Any]]:
    return run(path_of(name))


def path_of(name: str) -> Path:
    paths = (folder / f"{name}.yaml" for folder in (OWN, DERIVED))
    return next(path for path in paths if path.exists())


def shapes(picture: str) -> Counter[str]:
    """Count the shapes of each class in a picture."""
    root = ElementTree.fromstring(picture)
    return Counter(kind for e in root.iter() for kind in e.get("class", "").split())


def test_late_and_too_late_events_are_drawn_behind_the_watermark() -> None:
    expected = """\
sub-second
tumbling 250 milliseconds; watermark newest event time - 1 millisecond; lateness 250 milliseconds;
fires on time, late each arrival; accumulating

    event time, 2024-01-01 (UTC)
      00:00:00.000            00:00:00.200             00:00:00.400            00:00:00.600
    ──┬───────────────────────┬────────────────────────┬───────────────────────┬───────────────────
#0                                  ●1
    ╌───────────────────────────────┐
#1                                  ●2
#2                                  ┊                              ●4
                                    └─────────────────────────────┐
#3                                  ◆8                            ┊
#4                                                                ┊●16
                                                                  └┐
#5                                  ✕32                            ┊
#6                                                                 ┊ (the stream ends)
                                                                   └──────────────────────────────▶

      [============================)[=============================)[============================)
      total 9                       total 6                        total 16
      ON_TIME #2: 1                 ON_TIME #4                     ON_TIME #6
      LATE #3: 9

● on time   ◆ late   ✕ too late   ┊ watermark
[==) a published window, and its panes: TIMING #arrival: values
"""
    assert draw_text(*own("sub-second")) == expected


def test_merged_sessions_are_drawn() -> None:
    expected = """\
session-late-event-merges-two
session, gap 10 seconds; watermark set by the connector; lateness 1 minute; fires on time, late each
arrival; retracting

    event time, 2024-01-01 (UTC)
      00:00:00       00:00:05       00:00:10        00:00:15       00:00:20       00:00:25
    ──┬──────────────┬──────────────┬───────────────┬──────────────┬──────────────┬────────────────
#0    ●1                                            ●2
#1  (watermark)
    ╌────────────────────────────────────────────────────────────────────────────────────────────┐
#2                            ◆4                                                                 ┊
#3                                                                            (the stream ends)  ┊
                                                                                                 └▶

      [----------------------------)                [----------------------------)
      (merged into another)                         (merged into another)
      ON_TIME #1: 1                                 ON_TIME #1: 2
      LATE: -1                                      LATE: -2
      [==========================================================================)
      total 7
      LATE #2

● on time   ◆ late   ┊ watermark
[==) a published window, and its panes: TIMING #arrival: values
"""
    assert draw_text(*own("session-late-event-merges-two")) == expected


def test_a_moving_processing_clock_is_drawn() -> None:
    expected = """\
late-every
tumbling 1 minute; watermark set by the connector; lateness 1 hour; fires on time, late every 1
minute; accumulating

             event time, 2024-01-01 (UTC)
               00:00:00      00:00:10     00:00:20      00:00:30      00:00:40     00:00:50
             ──┬─────────────┬────────────┬─────────────┬─────────────┬────────────┬───────────────
#0 12:00:00                  ●1
#1 12:00:00  (watermark)
             ╌───────────────────────────────────────────────────────────────────────────────────┐
#2 12:00:00                               ◆2                                                     ┊
#3 12:00:30                                                                             (clock)  ┊
#4 12:00:30                                             ◆4                                       ┊
#5 12:01:00                                                                             (clock)  ┊
#6 12:01:00                                                           ◆8                         ┊
#7 12:06:00                                                                             (clock)  ┊
#8 12:06:00                                                                   (the stream ends)  ┊
                                                                                                 └▶

               [================================================================================)
               total 15
               ON_TIME #1: 1
               LATE #5: 7
               LATE #7: 15

● on time   ◆ late   ┊ watermark
[==) a published window, and its panes: TIMING #arrival: values
"""
    assert draw_text(*own("late-every")) == expected


def test_sources_and_the_arrivals_that_a_join_takes_are_drawn() -> None:
    expected = """\
an-unpaid-order
tumbling 1 hour by city; lateness 0 seconds; fires on time, late each arrival; accumulating

                event time, 2026-01-01 (UTC)
                           09:30         10:00         10:30         11:00         11:30
                ───────────┬─────────────┬─────────────┬─────────────┬─────────────┬───────────────

orders, watermark newest event time - 10 minutes
#0                                       ●a Ulm        ●b Ulm
                ╌──────────────────────────────────┐
#1                         ✕d Ulm                  ┊                                         c Ulm∅
#2                                                 ┊ (the stream ends)
                                                   └──────────────────────────────────────────────▶

payments, watermark newest event time - 10 minutes
#0                                                 ●a 5
                ╌─────────────────────────────┐
#1                                            ┊                                               x 1●
                                              └─────────────────────────────────────────────┐
#2                                                                       (the stream ends)  ┊
                                                                                            └─────▶

paid_orders, computed from orders and payments
#0 orders #0    (no rows)
#1 payments #0                                     ●Ulm 5
                ╌─┐
#2 orders #1      ┊ (no rows)
#3 payments #1    ┊                                    ●Ulm ~
                  └────────────────────────────────┐
#4 orders #2                                       ┊ (no rows)
                                                   └────────────┐
#5 payments #2                                                  ┊ (the stream ends)
                                                                └─────────────────────────────────▶

Ulm                                      [==========================)
                                         orders 2, paid 5
                                         ON_TIME #5

● on time   ✕ too late   ∅ no event time   ┊ watermark
[==) a published window, and its panes: TIMING #arrival: values
"""
    assert draw_text(*own("an-unpaid-order")) == expected
    found = shapes(draw_svg(*own("an-unpaid-order")))
    legend = 1
    assert found["watermark"] == 3 + legend
    assert found["on-time"] == 6 + legend
    assert (found["too-late"], found["none"], found["bar"]) == (1 + legend, 1 + legend, 1)
    assert found["number"] == 3 + 3 + 6


def test_retractions_of_a_chain_are_drawn_with_a_minus() -> None:
    lines = draw_text(*own("chain-total-of-totals-changes")).splitlines()
    (at,) = [n for n, line in enumerate(lines) if line.startswith("#3 s #3")]
    labels = [line.split("●")[1].strip(" ┊") for line in lines[at : at + 2]]
    assert labels == ["-12", "18"]


def test_overlapping_events_are_drawn_as_a_count(tmp_path: Path) -> None:
    crowd = yaml.safe_load((OWN / "no-keys.yaml").read_text())
    rows = crowd["arrivals"][0]["rows"]
    crowd["arrivals"] = [{"rows": rows * 4}]
    path = tmp_path / "crowd.yaml"
    path.write_text(yaml.safe_dump(crowd))
    scenario, result = run(path)
    (line,) = [line for line in draw_text(scenario, result).splitlines() if line.startswith("#0")]
    assert line.split() == ["#0", "●x4", "●x4", "●x4"]
    assert shapes(draw_svg(scenario, result))["on-time"] == 3 + 1


def test_an_empty_result_is_drawn_as_no_output() -> None:
    scenario, result = own("open-stream")
    nothing = result | {"windows": [], "panes": []}
    assert "(no output)" in draw_text(scenario, nothing)
    assert shapes(draw_svg(scenario, nothing))["bar"] == 0


def test_a_scenario_without_arrivals_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "nothing.yaml"
    given = yaml.safe_load((OWN / "no-keys.yaml").read_text())
    path.write_text(yaml.safe_dump(given | {"arrivals": [], "open": True}))
    scenario, result = run(path)
    assert "(no output)" in draw_text(scenario, result)
    assert shapes(draw_svg(scenario, result))["number"] == 0


def test_long_labels_are_truncated(tmp_path: Path) -> None:
    path = tmp_path / "long.yaml"
    given = (OWN / "two-keys.yaml").read_text()
    path.write_text(given.replace("name: a", "name: " + "abcdefghij" * 12))
    scenario, result = run(path)
    lines = draw_text(scenario, result).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert any("abcdefghijabcdefghija… 1" in line for line in lines)


def test_the_svg_has_a_mark_per_event_and_a_bar_per_window() -> None:
    found = shapes(draw_svg(*own("sub-second")))
    legend = 1
    assert found["on-time"] == 4 + legend
    assert found["late"] == 1 + legend
    assert found["too-late"] == 1 + legend
    assert found["watermark"] == 1 + legend
    assert (found["bar"], found["LATE"], found["ON_TIME"]) == (3, 1, 2)
    assert found["LATE-text"] == 1
    assert found["number"] == 7


def test_the_svg_marks_merged_sessions_and_open_windows() -> None:
    assert shapes(draw_svg(*own("session-late-event-merges-two")))["merged"] == 2
    assert shapes(draw_svg(*own("open-stream")))["open"] == 1


def test_the_svg_has_title_and_description_and_no_references() -> None:
    picture = draw_svg(*own("two-keys"))
    root = ElementTree.fromstring(picture)
    assert root.tag == f"{SVG}svg"
    assert root.findtext(f"{SVG}title") == "two-keys"
    assert root.findtext(f"{SVG}desc") == (
        "tumbling 10 seconds by name, part; watermark none until the source ends; lateness 0 "
        "seconds; fires on time, late each arrival; accumulating"
    )
    assert "href" not in picture
    assert "url(" not in picture
    assert "prefers-color-scheme: dark" in picture


def test_texts_in_the_data_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "texts.yaml"
    path.write_text(
        (OWN / "null-keys.yaml").read_text().replace("name: b}", r'name: "<&>\a\n\"' '"}')
    )
    scenario, result = run(path)
    assert "<&>··" in draw_text(scenario, result)
    labels = [e.text for e in ElementTree.fromstring(draw_svg(scenario, result)).iter(f"{SVG}text")]
    assert '<&>··"' in labels


def test_a_watermark_by_an_unsupported_expression_is_not_drawn(tmp_path: Path) -> None:
    path = tmp_path / "punctuated.yaml"
    given = (OWN / "perfect-nothing-is-late.yaml").read_text()
    path.write_text(given.replace("{perfect: {}}", "{punctuated: CASE WHEN v > 1 THEN ts END}"))
    result = simulate(yaml.safe_load(given))
    assert shapes(draw_svg(load_scenario(path), result))["watermark"] == 0
    assert "┊" not in draw_text(load_scenario(path), result)
    path.write_text(given.replace("{perfect: {}}", "{punctuated: ts}"))
    assert shapes(draw_svg(load_scenario(path), result))["watermark"] == 2


def test_steps_have_the_watermark_of_partitions(tmp_path: Path) -> None:
    path = tmp_path / "partitions.yaml"
    given = (OWN / "only-late-events.yaml").read_text()
    strategy = "{per_partition: {column: name, bound: 1 second, idle: 1 hour}}"
    path.write_text(given.replace("{monotonous: {}}", strategy))
    found = load_scenario(path)
    after = [s.after for s in list_steps(found, found.source)]
    assert [format_instant(a) for a in after] == [
        "2024-01-01T00:00:11Z",
        "2024-01-01T00:00:11Z",
        "2024-01-01T00:00:11Z",
        "+infinity",
    ]


@pytest.mark.parametrize("path", sorted(OWN.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_scenario_can_be_drawn(path: Path) -> None:
    scenario, result = run(path)
    assert max(map(len, draw_text(scenario, result).splitlines())) <= WIDTH
    assert shapes(draw_svg(scenario, result))["bar"] >= len(result["windows"])


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(drawn=scenarios())
def test_the_picture_matches_the_result_for_random_scenarios(
    tmp_path: Path, drawn: dict[str, Any]
) -> None:
    path = tmp_path / "any.yaml"
    path.write_text(yaml.safe_dump(drawn))
    scenario, result = run(path)
    assert max(map(len, draw_text(scenario, result).splitlines())) <= WIDTH
    ElementTree.fromstring(draw_svg(scenario, result))
    arrivals = list_steps(scenario, scenario.source)
    assert format_instant(arrivals[-1].after) == result["watermark"]
    events = classify_events(scenario, arrivals)
    late = sum(list(e.windows.values()).count(TOO_LATE) for e in events)
    assert late + sum(e.overall_lateness == NO_TIME for e in events) == len(result["late"])
    for bar in create_timeline(scenario, result).bars or ():
        fired = [pane.arrival for pane in bar.panes]
        told = [arrival for arrival in fired if arrival is not None]
        assert told == sorted(told)
        assert told == fired or "session" in drawn["transform"]["window"]


def as_float(watermark: int | None) -> float:
    return -math.inf if watermark is None else math.inf if watermark == INFINITY else watermark


@pytest.mark.parametrize("path", sorted(DERIVED.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_case_of_derived_sources_can_be_drawn(path: Path) -> None:
    scenario, result = run(path)
    assert max(map(len, draw_text(scenario, result).splitlines())) <= WIDTH
    assert shapes(draw_svg(scenario, result))["bar"] == len(result.get("windows", ()))


def test_the_picture_matches_the_result_for_random_derived_sources(tmp_path: Path) -> None:
    for seed in range(40):
        content = random_derived_scenario(seed, changes=seed % 2 == 0)
        path = tmp_path / "any.yaml"
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        scenario, result = run(path)
        assert max(map(len, draw_text(scenario, result).splitlines())) <= WIDTH, seed
        ElementTree.fromstring(draw_svg(scenario, result))
        logs, expected = event_logs(scenario, result), derived_oracle.source_logs(content)
        for name, definition in content["derived"].items():
            expected[name] = derived_oracle.derive(definition, expected, None)
        for name, log in expected.items():
            watermarks = [(as_float(s.before), as_float(s.after)) for s in logs[name]]
            assert watermarks == [(a.before, a.after) for a in log.arrivals], (seed, name)
        assert format_instant(logs[scenario.source.name][-1].after) == result["watermark"], seed


FIGURES = sorted(ROOT.glob("docs/images/*.svg"))
MEASURED = sorted(ROOT.glob("docs/images/measured/*.svg"))
"""Pictures of benchmarks. Their figures differ in each run, so they can't be compared."""


@pytest.mark.parametrize("figure", FIGURES, ids=lambda path: path.stem)
def test_figures_in_the_docs_are_up_to_date(figure: Path) -> None:
    path = path_of(figure.stem).relative_to(ROOT)
    again = f"tidemark test {path} --svg docs/images"
    assert figure.read_text() == draw_svg(*own(figure.stem)), again


def test_each_figure_is_used_in_the_docs() -> None:
    shown = "".join(page.read_text() for page in ROOT.glob("docs/*.md"))
    assert len(FIGURES) >= 10
    assert MEASURED
    names = [path.relative_to(ROOT / "docs").as_posix() for path in FIGURES + MEASURED]
    assert [name for name in names if f"({name})" not in shown] == []
