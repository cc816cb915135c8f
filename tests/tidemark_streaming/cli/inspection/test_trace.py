"""`tidemark trace` for people and as JSON for scripts."""

import json

import pytest

from helpers.processes.commands import call

pytestmark = pytest.mark.usefixtures("here")
ASSET = "departures_hourly"


def test_trace_shows_an_event_as_text_and_as_json() -> None:
    assert call("ingest", "flights", "--recorded", "--days", "1", "--bulk").exit_code == 0
    assert call("run", ASSET).exit_code == 0
    (told,) = json.loads(call("trace", "flights:2:5", "--source", "flights", "--json").stdout)
    assert (told["source"], told["arrival"], told["position"]) == ("flights", 2, 5)
    assert told["read_from"].endswith("#5")
    fates = {fate["asset"]: fate for fate in told["assets"]}
    assert fates["day_totals"]["state"] == "not run"
    assert "temperature_hourly" not in fates
    (place,) = fates[ASSET]["places"]
    assert (place["verdict"], place["in_row"]) == ("on_time", True)
    assert place["keys"]["origin"] == told["event"]["origin"]
    assert "asset_reliability" in [mart["mart"] for mart in place["marts"]]
    drawn = " ".join(call("trace", "flights:2:5").stdout.split())
    assert "arrival 2 of flights, position 5" in drawn
    assert f"origin={place['keys']['origin']}: on time" in drawn
    assert "published revision 0, ON_TIME, final" in drawn
    assert "has not run yet: `tidemark run day_totals`" in drawn


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["flights:999:0"],
            "No arrival of 'flights', ",
        ),
        (["flights:0:0", "--source", "nothing"], "There is no source 'nothing'. Available: "),
    ],
)
def test_unknown_events_and_sources_are_refused(arguments: list[str], sentence: str) -> None:
    result = call("trace", *arguments)
    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.split())
    assert result.stdout == ""
