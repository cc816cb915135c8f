"""The output of `tidemark backfill --too-late`, and a roll-up that follows its base."""

import json

import pytest

from helpers.processes.commands import call

pytestmark = pytest.mark.usefixtures("here")
ASSET, DAILY = "departures_hourly", "departures_daily"


def test_a_correction_reports_its_changes_and_a_second_one_none() -> None:
    assert call("ingest", "flights", "--recorded", "--days", "3", "--bulk").exit_code == 0
    call("run", ASSET)
    done = json.loads(call("backfill", ASSET, "--too-late", "--json").stdout)
    assert done["facts"]["mode"] == "correction"
    assert done["total"] == len(done["changes"]) > 0
    change = next(c for c in done["changes"] if c["column"] == "flights")
    assert int(change["after"]) > int(change["before"] or 0)
    assert json.loads(call("backfill", ASSET, "--too-late", "--json").stdout) is None
    again = call("backfill", ASSET, "--too-late")
    assert again.exit_code == 0
    assert "lacks a too-late event: there is nothing to correct" in " ".join(again.stderr.split())


def test_a_correction_lists_its_changes() -> None:
    call("backfill", ASSET)
    shown = call("backfill", ASSET, "--too-late", "--limit", "1").stdout
    assert "values of" in shown
    assert "increase --limit to list them" in shown


def test_a_roll_up_follows_its_base() -> None:
    facts = json.loads(call("run", DAILY, "--json").stdout)
    assert (facts["mode"], facts["through_arrival"]) == ("rollup", 11)
    assert facts["windows"] > 0
    assert json.loads(call("run", DAILY, "--json").stdout) is None
    found = json.loads(call("status", "--json").stdout)
    asset = next(a for a in found["assets"] if a["asset"] == DAILY)
    assert (asset["as_of"], asset["behind"]) == (11, 0)
    assert asset["open"] == asset["windows"] - asset["final"]
    for option in ([], ["--too-late"]):
        refused = call("backfill", DAILY, *option)
        assert refused.exit_code == 2
        assert "'departures_daily' is a roll-up" in refused.stderr
