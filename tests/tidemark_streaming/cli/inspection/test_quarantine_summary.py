"""The summary of quarantined windows: how often each expectation failed, and when."""

from datetime import UTC, datetime

import pytest

from tidemark_streaming.cli.inspection.quarantine import print_summary


def test_the_summary_counts_windows_and_events_by_expectation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def failed(*names: str) -> list[dict[str, str]]:
        return [{"expectation": name, "level": "error", "observed": "9"} for name in names]

    rows = [
        {
            "window_start": datetime(2026, 1, day, tzinfo=UTC),
            "events": day,
            "failed_expectations": failed(*names),
        }
        for day, names in (
            (1, ("[b]odd",)),
            (2, ("low", "low")),
            (3, ("low", "[b]odd")),
            (4, ("low",)),
        )
    ]
    print_summary(rows)
    cells = [
        " ".join(line.replace("│", " ").split()) for line in capsys.readouterr().out.splitlines()
    ]
    assert "low 3 9 2026-01-02 00:00:00 2026-01-04 00:00:00" in cells
    assert "[b]odd 2 4 2026-01-01 00:00:00 2026-01-03 00:00:00" in cells
    assert cells.index("low 3 9 2026-01-02 00:00:00 2026-01-04 00:00:00") < cells.index(
        "[b]odd 2 4 2026-01-01 00:00:00 2026-01-03 00:00:00"
    )
