"""`tidemark test`: several files in one call, and its exit codes."""

import json
import re
from pathlib import Path

import pytest

from helpers.processes.commands import call

TESTS = Path(__file__).parents[3]
RIGHT = TESTS / "scenarios" / "no-keys.yaml"
OF_AN_ASSET = TESTS / "kiosk" / "a-late-order.yaml"
DERIVED = TESTS / "cases" / "derived" / "kafka-left-expired-by-the-right.yaml"
WRONG = TESTS / "cases" / "negative" / "wrong-expectation.yaml"


@pytest.mark.usefixtures("here")
def test_files_are_simulated_in_order_and_failures_reported() -> None:
    done = call("test", "--json", "--arrivals-per-run", "2", str(WRONG), str(RIGHT))
    assert done.exit_code == 1
    assert [found["name"] for found in json.loads(done.stdout)] == [
        "negative-wrong-expectation",
        "no-keys",
    ]
    assert "negative-wrong-expectation: not as expected" in done.stderr
    assert "1 of 2 scenarios failed" in done.stderr
    assert "differ" not in done.stderr


@pytest.mark.usefixtures("here")
def test_the_windows_of_a_passing_scenario_are_shown() -> None:
    done = call("test", "--mode", "batch", str(RIGHT))
    assert done.exit_code == 0
    assert "no-keys: windows" in done.stdout


@pytest.mark.usefixtures("nowhere")
def test_invalid_files_alone_start_no_engine(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("name: [")
    done = call("test", str(broken))
    assert done.exit_code == 2
    assert f"{broken}:1:" in done.stderr.replace("\n", "")
    assert done.stdout == ""


@pytest.mark.usefixtures("here")
def test_the_other_files_run_if_some_are_refused(tmp_path: Path) -> None:
    refused = [tmp_path / f"broken-{n}.yaml" for n in range(3)]
    for number, file in enumerate(refused):
        file.write_text(["name: [", "", "name: a\nsource: 1\n"][number])
    files = [refused[0], RIGHT, refused[1], WRONG, refused[2]]
    done = call("test", "--json", "--mode", "batch", *map(str, files))
    assert done.exit_code == 2
    told = json.loads(done.stdout)
    assert [entry.get("name") for entry in told[:2]] == ["no-keys", "negative-wrong-expectation"]
    assert [entry["file"] for entry in told[2:]] == [str(file) for file in refused]
    for file, entry in zip(refused, told[2:], strict=True):
        assert entry["error"].startswith(f"{file}:1:") or entry["error"].startswith(f"{file}:2:")
        assert entry["error"] in done.stderr
    assert "1 of 2 scenarios failed" in done.stderr
    assert "3 files of 5 could not be read as a scenario." in done.stderr


@pytest.mark.usefixtures("here")
def test_the_time_of_a_scenario_is_that_of_its_runs() -> None:
    done = call("test", "--mode", "batch", str(RIGHT), str(RIGHT))
    took = [float(text) for text in re.findall(r"no-keys  ([0-9.]+) s", done.stderr)]
    assert len(took) == 2
    # Both run at the same time, and neither takes no time.
    assert min(took) > 0


@pytest.mark.usefixtures("here")
def test_a_scenario_of_an_asset_is_simulated_like_others() -> None:
    done = call("test", "--draw", str(OF_AN_ASSET))
    assert done.exit_code == 0, done.output
    assert "tumbling 1 hour by town" in done.stdout
    assert "◆york-2 ~ 1" in done.stdout


@pytest.mark.usefixtures("here")
def test_derived_sources_are_simulated_and_drawn(tmp_path: Path) -> None:
    drawn = ["--svg", str(tmp_path)]
    done = call("test", "--json", "--arrivals-per-run", "3", *drawn, str(DERIVED))
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)
    assert list(found) == ["name", "watermark", "derived", "unjoined"]
    pairs = [(row["arrival"], row["l_id"], row["r_id"]) for row in found["derived"]["joined"]]
    assert pairs == [(3, "A1", "a1"), (4, "A0", None), (4, "A0-0", None)]
    assert found["unjoined"] == {"joined": []}
    assert "joined, computed from " in (tmp_path / f"{DERIVED.stem}.svg").read_text()
