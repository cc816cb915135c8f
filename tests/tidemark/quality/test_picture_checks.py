"""Tests of the chart of validation results over time, with generated results."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest

from tidemark.base.errors import DataError
from tidemark.charts import picture, picture_checks
from tidemark.quality.results import CheckResult

AT = datetime(2026, 1, 1, tzinfo=UTC)


def result(commit_number: int, expectation: str, level: str, failed: int) -> CheckResult:
    return CheckResult(
        asset="hourly",
        side_of=None,
        table_id="",
        expectation=expectation,
        level=level,
        success=not failed,
        window_from=AT,
        window_to=AT + timedelta(hours=1),
        rows_validated=10,
        rows_failed=failed,
        observed="",
        expected="",
        failures=[],
        run="r",
        mode="incremental",
        through_arrival=commit_number * 4,
        commit_number=commit_number,
        at=AT + timedelta(minutes=commit_number),
    )


@pytest.mark.parametrize("runs", [1, 60])
def test_each_expectation_is_drawn_as_a_strip_of_runs(tmp_path: Path, runs: int) -> None:
    results = [
        result(
            commit_number, expectation, level, failed=commit_number % 4 if level == "warning" else 0
        )
        for commit_number in range(runs)
        for expectation, level in (("matches_log()", "error"), ("between(n, 1, 2)", "warning"))
    ]
    chart = picture_checks.history_chart(results, title="What was expected")
    saved = picture.save_chart(chart, tmp_path, "history")
    assert saved.png.stat().st_size > 20_000
    table = chart.data
    assert isinstance(table, pd.DataFrame)
    assert set(table["outcome"]) == ({"as expected", "warning"} if runs > 1 else {"as expected"})
    assert table["share"].max() == (0.3 if runs > 1 else 0)


def test_a_chart_without_results_is_refused() -> None:
    with pytest.raises(DataError, match="no expectation result to draw"):
        picture_checks.history_chart([], title="")
