"""Open integrity faults of Tidemark, found from tables alone and shown by `tidemark status`."""

import json
from pathlib import Path

import pytest

from gated.transforms import gated
from helpers.data.judgements import NOW, judged, publish, withhold
from helpers.data.support import MINUTE, T0
from helpers.processes.commands import call
from tidemark.base.settings import Settings
from tidemark_streaming.snapshot.check_results import IntegrityFault, find_integrity_fault
from tidemark_streaming.snapshot.snapshot import Snapshot


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Return settings of a home without an engine, whose only domain is `gated`."""
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEMARK_REMOTE", "sc://localhost:1")
    monkeypatch.setenv("TIDEMARK_DOMAINS", "gated")
    return Settings()


def stands(settings: Settings) -> IntegrityFault | None:
    return find_integrity_fault(Snapshot(settings), gated)


def test_an_asset_without_integrity_failures_has_no_fault(
    settings: Settings,
) -> None:
    assert stands(settings) is None
    judged(settings, 0)
    judged(settings, 1, (3, "a"), expectation="between(most, max_value=5)")
    withhold(settings, (3, "a"), by="between(most, max_value=5)")
    assert stands(settings) is None


def test_quarantined_windows_are_faults_until_fixed_or_discarded(settings: Settings) -> None:
    judged(settings, 0)
    judged(settings, 1, (3, "a"), (4, None))
    judged(settings, 2)
    withhold(settings, (3, "a"), (4, None))
    found = stands(settings)
    assert found is not None
    assert (found.windows, found.expectations) == (2, ["matches_log()"])
    assert (found.first, found.since) == (T0 + 3 * MINUTE, NOW.replace(minute=1))
    withhold(settings, (4, None))
    publish(settings, 3, "passed", (3, "a"))
    found = stands(settings)
    assert found is not None
    assert found.windows == 1
    withhold(settings, (4, None), status="discarded")
    assert stands(settings) is None


def test_a_missing_window_is_a_fault_until_a_later_run_passes(
    settings: Settings,
) -> None:
    judged(settings, 1, (3, "b"))
    publish(settings, 1, "passed", (3, "a"))
    found = stands(settings)
    assert found is not None
    assert found.windows == 1
    # A run over other windows does not clear the fault; a run over this window does.
    judged(settings, 2, minutes=(4, 10))
    assert stands(settings) is not None
    judged(settings, 3, minutes=(2, 10))
    assert stands(settings) is None


def test_a_warning_is_a_fault_until_its_row_is_recomputed(settings: Settings) -> None:
    judged(settings, 1, (3, "a"), expectation="unique_key()")
    publish(settings, 1, "warned", (3, "a"))
    found = stands(settings)
    assert found is not None
    assert found.expectations == ["unique_key()"]
    publish(settings, 2, "passed", (3, "a"))
    assert stands(settings) is None


def test_failures_of_an_earlier_table_id_are_ignored(settings: Settings) -> None:
    judged(settings, 1, (3, "b"))
    assert stands(settings) is not None
    judged(settings, 2, table_id="two")
    assert stands(settings) is None


def test_status_shows_the_fault_and_its_fix_in_one_line(settings: Settings) -> None:
    quiet = call("status")
    assert "fault of Tidemark" not in quiet.stdout
    assert json.loads(call("status", "--json").stdout)["findings"] == []
    judged(settings, 5, (3, "a"))
    withhold(settings, (3, "a"))
    (line,) = [x for x in call("status").stdout.splitlines() if "fault of Tidemark" in x]
    assert line.startswith(
        "gated: 1 window fails matches_log() since 2026-11-22 14:05 UTC, the first at "
        "2023-11-14T22:17:00Z; this is a fault of Tidemark, not of the data. `tidemark backfill "
        "gated` recomputes them from the event log."
    )
    findings = json.loads(call("status", "--json").stdout)["findings"]
    assert [(f["kind"], f["level"], f["node"]) for f in findings] == [
        ("integrity_fault", "error", "asset gated"),
        ("quarantine", "warning", "asset gated"),
    ]
    assert findings[0]["since"] == "2026-11-22T14:05:00Z"
