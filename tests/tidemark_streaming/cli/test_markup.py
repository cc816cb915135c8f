"""Values of events that look like rich's markup are printed as they are."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.data.support import PER_MINUTE
from tidemark_streaming.cli.inspection import quarantine, scenarios
from tidemark_streaming.cli.processing import live

ODD = "[/] [red]x[/red] [/nothing]"


def window() -> dict[str, Any]:
    return {
        "window_start": datetime(2026, 1, 1, tzinfo=UTC),
        **dict.fromkeys(("events", "late_events", "timing", "final", "quarantine_status"), ""),
        **dict.fromkeys((*PER_MINUTE.keys, *PER_MINUTE.aggregates), ODD),
        "failed_expectations": [
            {"expectation": ODD, "level": "error", "observed": ODD, "expected": ODD}
        ],
    }


def test_quarantined_windows_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    quarantine._print_windows(PER_MINUTE, [window()])
    keys, values = len(PER_MINUTE.keys), len(PER_MINUTE.aggregates)
    assert capsys.readouterr().out.count(ODD) == keys + values + 3


def test_results_of_a_scenario_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    scenario: Any = SimpleNamespace(name="odd")
    scenarios._print_result(scenario, {"windows": [{"k": ODD}], "panes": [{"k": None}], "late": []})
    assert capsys.readouterr().out.count(ODD) == 1


def test_windows_in_the_live_view_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.table import Table

    from tidemark_streaming.cli.console import result_console

    table = Table("key")
    table.add_row(live._format_cell(ODD))
    result_console().print(table)
    assert capsys.readouterr().out.count(ODD) == 1
