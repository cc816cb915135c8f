"""Test that each fault, each rule and each command has a test that continuous integration runs.

Nightly tests are variants of these.
"""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import typer

from helpers.suite.fast import FAST_WITH_ENGINE
from tidemark_streaming.cli import app

# Collects tests in another process.
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
TEST = re.compile(r"`(tests/[\w/]+\.py(?:::test_\w+)?)`")
SCENARIOS = "tests/tidemark_streaming/scenario/test_simulate.py"
CLI = "tests/tidemark_streaming/cli"
TESTS_OF_COMMANDS: dict[str, dict[str, tuple[str, ...]]] = {
    "tests/tidemark_streaming/starter/test_new.py": {
        "test_with_default_names_the_project_equals_the_template": ("new",),
    },
    "tests/end_to_end/test_wheel.py": {
        "test_the_demo_runs_in_an_empty_folder": ("demo", "down"),
    },
    "tests/end_to_end/test_dagster_ui.py": {
        "test_files_become_windows_by_clicks_alone": ("up",),
    },
    f"{CLI}/ingestion/test_dead_letters.py": {
        "test_dead_letters_are_counted_shown_and_replayed": (
            "status",
            "dead-letters list",
            "dead-letters show",
            "dead-letters replay",
        ),
    },
    f"{CLI}/ingestion/test_kafka.py": {
        "test_an_ingest_follows_until_it_is_stopped": ("ingest",),
        "test_a_broker_is_started_once_and_keeps_its_topics": ("dev kafka up", "dev kafka down"),
    },
    f"{CLI}/test_commands.py": {
        "test_a_backfill_of_a_range_reports_its_counts": ("backfill",),
        "test_parity_exits_with_0_if_all_rows_are_equal": ("parity",),
    },
    f"{CLI}/ingestion/test_close.py": {
        "test_all_windows_close_when_the_source_ends": ("close", "run"),
    },
    f"{CLI}/test_streaming_commands.py": {
        "test_a_stream_catches_up_and_prints_its_progress": ("stream",),
    },
    f"{CLI}/operations/test_changing.py": {
        "test_promoting_over_a_killed_run_requires_no_backup": ("diff", "rebuild"),
    },
    f"{CLI}/processing/test_sink.py": {
        "test_sink_publishes_windows_once_with_reset_and_continuously": ("sink",),
    },
    f"{CLI}/inspection/test_show.py": {
        "test_windows_are_shown_as_table_and_csv_and_late_events_too": ("show",),
    },
    f"{CLI}/inspection/test_trace.py": {
        "test_trace_shows_an_event_as_text_and_as_json": ("trace",),
    },
    f"{CLI}/inspection/test_tap.py": {
        "test_tap_shows_the_rows_of_a_running_stream": ("tap",),
    },
    f"{CLI}/inspection/test_quarantine.py": {
        "test_quarantined_windows_are_listed_and_shown": ("quarantine list", "quarantine show"),
        "test_windows_are_released_and_discarded": ("quarantine release", "quarantine discard"),
    },
    f"{CLI}/inspection/test_scenarios.py": {
        "test_files_are_simulated_in_order_and_failures_reported": ("test",),
    },
    "tests/tidemark_assets/test_marts.py": {
        "test_command_line_builds_are_reported_to_dagster": ("dbt build",),
    },
    f"{CLI}/marts/test_marts.py": {
        "test_dbt_receives_its_arguments_unchanged": ("dbt COMMAND",),
    },
    f"{CLI}/marts/test_dbt_sources.py": {
        "test_a_new_project_has_sources_that_match_its_definitions": ("dbt sources",),
    },
    f"{CLI}/operations/test_watermark.py": {
        "test_without_the_guard_commands_warn_and_lowering_repairs_the_watermark": ("watermark",),
    },
    f"{CLI}/operations/test_maintain.py": {
        "test_files_are_compacted_and_the_result_is_shown": ("maintain",),
        "test_a_dropped_asset_starts_from_the_beginning": ("drop",),
    },
    f"{CLI}/operations/test_engine.py": {
        "test_the_settings_are_printed_each_below_its_reason": ("engine conf",),
        "test_an_engine_that_fits_and_one_that_does_not": ("engine check",),
    },
    f"{CLI}/operations/test_fsck.py": {
        "test_damage_is_reported": ("fsck",),
    },
    f"{CLI}/operations/test_erase.py": {
        "test_an_erasure_leaves_no_data_of_the_person_in_the_home": ("erase",),
    },
    "tests/test_followed_pages.py": {
        "test_the_documented_lane_runs": ("lane",),
    },
}
"""The commands that a test of a file runs to the end. Other tests check options and messages."""
COMMANDS = {
    command: (file, test)
    for file, tests in TESTS_OF_COMMANDS.items()
    for test, commands in tests.items()
    for command in commands
}


def faults() -> dict[str, list[str]]:
    """Return the tests of each fault, as documented."""
    page = (ROOT / "docs/failure_recovery.md").read_text()
    section = page.partition("## Tests for each fault")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| ")]
    return {
        row[1].strip(): TEST.findall(row[2])
        for row in rows
        if row[1].strip() not in ("fault", "---")
    }


def names(command: object, path: tuple[str, ...] = ()) -> list[str]:
    """Return the full names of all commands below a command."""
    below: dict[str, object] = getattr(command, "commands", {})
    if not below:
        return [" ".join(path)]
    return [name for part, each in below.items() for name in names(each, (*path, part))]


@cache
def ci_tests() -> frozenset[str]:
    """Return the tests of all named files that `make test-all` runs, without their parameters."""
    named = [test for tests in faults().values() for test in tests]
    files = {test.partition("::")[0] for test in named} | {*TESTS_OF_COMMANDS, SCENARIOS}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:xdist"]
    collected = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-m", "not nightly", *sorted(files)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert collected.returncode == 0, collected.stdout + collected.stderr
    return frozenset(line for line in collected.stdout.splitlines() if "::" in line)


def runs_in_ci(test: str) -> bool:
    """Return whether continuous integration runs a test, for any of its parameters, or any test of
    a file."""
    return any(each == test or each.startswith((f"{test}[", f"{test}::")) for each in ci_tests())


def test_each_fault_has_a_test_that_ci_runs() -> None:
    assert len(faults()) > 15
    without = [fault for fault, tests in faults().items() if not any(map(runs_in_ci, tests))]
    assert without == []
    named = [test for tests in faults().values() for test in tests if "::" in test]
    missing = [test for test in named if not is_defined(test)]
    assert missing == []


def test_each_scenario_of_a_rule_runs_in_ci() -> None:
    test = f"{SCENARIOS}::test_a_scenario_gives_its_expected_results"
    scenarios = [path.stem for path in (ROOT / "tests/scenarios").glob("*.yaml")]
    assert len(scenarios) > 40
    assert [name for name in scenarios if not runs_in_ci(f"{test}[{name}]")] == []


def test_each_command_has_a_test_that_ci_runs() -> None:
    assert sorted(COMMANDS) == sorted(names(typer.main.get_command(app)))
    found = {name: runs_in_ci("::".join(test)) for name, test in COMMANDS.items()}
    assert [name for name, runs in found.items() if not runs] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_the_test_of_a_command_calls_it(command: str) -> None:
    """Its name is a string in the test's module, or in the page that the test follows."""
    text = (ROOT / COMMANDS[command][0]).read_text()
    first, *_ = command.split()
    assert first in strings(text) or f"tidemark {first} " in followed_pages(text)


def test_each_listed_fast_test_is_defined() -> None:
    listed = [f"{file}::{name}" for file, names in FAST_WITH_ENGINE.items() for name in names]
    assert [test for test in listed if not is_defined(test)] == []


def is_defined(test: str) -> bool:
    file, _, name = test.partition("::")
    return f"def {name}(" in (ROOT / file).read_text()


def strings(text: str) -> set[str]:
    nodes = ast.walk(ast.parse(text))
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def followed_pages(text: str) -> str:
    pages = {each for each in strings(text) if each.startswith("docs/") and each.endswith(".md")}
    return "".join((ROOT / page).read_text() for page in pages)
