"""The commands in the order in which a user gives them: play, compute, verify, stream.

`test_streaming_commands.py` tests streams in more detail.
"""

import json
import time

import pytest

from helpers.processes.commands import call
from tidemark.base.settings import Settings
from tidemark_streaming.streams import desired_streams
from tidemark_streaming.streams.supervisor import GIVEN_UP, Stream, write_statuses

pytestmark = pytest.mark.usefixtures("here")
ASSET = "departures_hourly"


def test_playing_the_same_days_twice_adds_no_arrivals() -> None:
    first = call("ingest", "flights", "--recorded", "--days", "3", "--bulk", "--json")
    facts = json.loads(first.stdout)
    assert first.exit_code == 0
    assert facts["arrivals"] == 12
    assert facts["events"] > 2000
    assert facts["watermark"].startswith("2013-01-03T")
    again = call("ingest", "flights", "--recorded", "--days", "3", "--bulk", "--json")
    assert json.loads(again.stdout)["arrivals"] == 0


def test_run_processes_some_arrivals_and_a_backfill_all() -> None:
    ran = json.loads(call("run", ASSET, "--max-arrivals", "4", "--json").stdout)
    assert (ran["mode"], ran["from_arrival"], ran["through_arrival"]) == ("incremental", -1, 3)
    filled = json.loads(call("backfill", ASSET, "--json").stdout)
    assert filled["through_arrival"] == 11
    assert filled["on_time"] + filled["late"] + filled["too_late"] == filled["events"]
    nothing = call("run", ASSET, "--json")
    assert json.loads(nothing.stdout) is None


def test_a_backfill_of_a_range_reports_its_counts() -> None:
    result = call("backfill", ASSET, "--from", "2013-01-02", "--to", "2013-01-03")
    assert result.exit_code == 0
    assert "late, counted" in result.stdout
    assert "backfill departures_hourly" in result.stderr


def test_a_bound_is_recommended_for_the_watermark() -> None:
    found = json.loads(call("watermark", "flights", "--recommend", "--json").stdout)
    assert found["total"]["events"] > found["live"]["events"] > 1000
    assert found["live"]["recommended"]["share"] <= found["target"]
    assert "BoundedOutOfOrderness" in call("watermark", "flights", "--recommend").stdout


def test_status_shows_the_progress_of_sources_and_assets(here: Settings) -> None:
    found = json.loads(call("status", "--json").stdout)
    assert found["processes"][0]["running"] is True
    source = next(s for s in found["sources"] if s["name"] == "flights")
    asset = next(a for a in found["assets"] if a["asset"] == ASSET)
    assert source["arrivals"] == 12
    assert (asset["as_of"], asset["behind"]) == (11, 0)
    assert asset["windows"] >= asset["final"] > 0
    assert asset["open"] > 0
    assert found["streams"] == []
    assert "departures_hourly" in call("status").stdout


def test_parity_exits_with_0_if_all_rows_are_equal() -> None:
    result = call("parity", ASSET, "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert report["equal"] is True
    assert report["windows"] > 100


def test_a_stream_can_be_detached_and_stopped_later() -> None:
    assert call("stream", ASSET, "--detach").exit_code == 0
    twice = call("stream", ASSET)
    assert twice.exit_code == 2
    assert "already running" in twice.stderr
    (stream,) = json.loads(call("status", "--json").stdout)["streams"]
    assert (stream["asset"], stream["state"]) == (ASSET, "running")
    assert call("stream", ASSET, "--stop").exit_code == 0
    assert call("stream", ASSET, "--stop").exit_code == 2


def test_status_shows_why_a_stream_does_not_run(here: Settings) -> None:
    request = desired_streams.request_stream(here, ASSET)
    given_up = Stream(request.since, GIVEN_UP, failures=10, error="The column [x] is missing.")
    try:
        assert "should run, and no supervisor restarts it" in " ".join(
            call("status").stdout.split()
        )
        write_statuses(here, "flights", {ASSET: given_up}, time.time_ns() // 1000)
        assert (
            f"The stream of {ASSET} was given up. It has failed 10 times in a row. Its error: The "
            "column [x] is missing. Correct the cause, then start it with `tidemark stream "
            f"{ASSET} --detach`."
        ) in " ".join(call("status").stdout.split())
        (stream,) = json.loads(call("status", "--json").stdout)["streams"]
        assert (stream["state"], stream["error"]) == ("given up", given_up.error)
    finally:
        desired_streams.cancel_request(here, ASSET)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["backfill", ASSET, "--from", "2014-01-01"], "No window of 'flights'"),
        (["parity", ASSET, "--from", "2012-01-01", "--to", "2012-02-01"], "No window of 'flights'"),
    ],
)
def test_a_range_without_windows_is_refused(arguments: list[str], sentence: str) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.split())
