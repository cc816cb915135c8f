"""Test `tidemark watermark`: the partitions, and one row dated 2099 with the `max_future_skew` of a
new project, the warning without it, and the repair."""

import json
import os
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from helpers.processes.commands import call
from tidemark.base.settings import Settings

BOUNDED = 'BoundedOutOfOrderness("10 minutes")'
GUARD = '    max_future_skew="1 hour",\n'
HEADER = "ordered_at,city,amount\n"
FAR_FUTURE = HEADER + (
    "2026-01-01T09:05:00Z,york,12\n"
    "2099-01-01T00:00:00Z,york,1\n"
    "2026-01-01T09:40:00Z,york,20\n"
    "2026-01-01T10:15:00Z,leeds,16\n"
)
LATER = HEADER + "2026-01-01T10:30:00Z,york,4\n2026-01-01T12:05:00Z,york,1\n"


@pytest.fixture(scope="module", autouse=True)
def project(here: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a project with `tidemark new` and return its folder. Its landing folder is empty."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("projects"))
        assert call("new", "clocked").exit_code == 0
        return Path.cwd() / "clocked"


@pytest.fixture(autouse=True)
def _in_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend(project)
    monkeypatch.setenv("TIDEMARK_DOMAINS", "clocked")


def define(project: Path, *, guarded: bool) -> None:
    """Define the source with or without the guard, as a user would edit the file."""
    path = project / "clocked/sources.py"
    text = path.read_text().replace(GUARD, "")
    path.write_text(text.replace("\n)\n", f"\n{GUARD if guarded else ''})\n"))
    forget()


def forget() -> None:
    """Let the next command import the project again."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "clocked"]:
        del sys.modules[name]


def land(here: Settings, name: str, text: str) -> None:
    folder = Path(here.landing) / "orders"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def said(*words: str) -> str:
    result = call(*words)
    assert result.exit_code == 0, result.stderr
    return " ".join((result.stdout + result.stderr).split())


def status() -> dict[str, object]:
    return json.loads(call("status", "--json").stdout)["sources"][0]


def findings() -> list[dict[str, object]]:
    return json.loads(call("status", "--json").stdout)["findings"]


def windows() -> list[tuple[str, str, float, bool]]:
    rows = json.loads(call("show", "orders_hourly", "--json").stdout)
    return sorted((r["window_start"], r["city"], r["total"], r["final"]) for r in rows)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_new_project_ignores_an_event_far_in_the_future(
    here: Settings, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert GUARD in (project / "clocked/sources.py").read_text()
    monkeypatch.setenv("TIDEMARK_DATABASE", f"{here.database}_guarded")
    land(here, "0.csv", FAR_FUTURE)
    told = said("ingest", "orders")
    assert (
        "1 event of 'orders' is dated more than 1 hour after arrival, the first dated "
        "2099-01-01T00:00:00Z (0.csv#1)."
    ) in told
    assert "watermark 2026-01-01T10:05:00Z" in told
    said("run", "orders_hourly")
    land(here, "1.csv", LATER)
    assert "dated more than" not in said("ingest", "orders")
    said("run", "orders_hourly")
    expected = [
        ("2026-01-01T09:00:00Z", "york", 32.0, True),
        ("2026-01-01T10:00:00Z", "leeds", 16.0, False),
        ("2026-01-01T10:00:00Z", "york", 4.0, False),
    ]
    assert windows() == expected
    assert findings() == []
    for name in ("0.csv", "1.csv"):
        (Path(here.landing) / "orders" / name).unlink()


def test_partitions_are_listed_from_the_one_that_holds_the_watermark_back(
    here: Settings, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output is that of docs/watermarks.md."""
    monkeypatch.setenv("TIDEMARK_DATABASE", f"{here.database}_cities")
    monkeypatch.setenv("TIDEMARK_LANDING", str(project / "cities"))
    path = project / "clocked/sources.py"
    text = path.read_text()
    path.write_text(
        text.replace(BOUNDED, 'PerPartition("city", "10 minutes", idle="1 hour")').replace(
            "import BoundedOutOfOrderness", "import PerPartition"
        )
    )
    forget()
    files = {
        "10:00": "2026-01-01T09:40:00Z,york,12\n2026-01-01T09:20:00Z,leeds,16\n",
        "10:30": "2026-01-01T10:20:00Z,york,4\n",
    }
    try:
        for number, (time, rows) in enumerate(files.items()):
            file = project / f"cities/orders/{number}.csv"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(HEADER + rows)
            arrived = datetime.fromisoformat(f"2026-01-01T{time}Z").timestamp()
            os.utime(file, (arrived, arrived))
        said("ingest", "orders")
        shown = call("watermark", "orders")
        found = json.loads(call("watermark", "orders", "--json").stdout)
    finally:
        path.write_text(text)
        forget()
    lines = [line.rstrip() for line in shown.stdout.splitlines()]
    page = (Path(__file__).parents[4] / "docs/watermarks.md").read_text()
    assert "\n".join(lines) in page
    assert found["partitions"][0] == {
        "value": "leeds",
        "watermark": "2026-01-01T09:10:00Z",
        "heard_at": "2026-01-01T10:00:00Z",
        "idle": False,
    }


@pytest.mark.slow
def test_without_the_guard_commands_warn_and_lowering_repairs_the_watermark(
    here: Settings, project: Path
) -> None:
    define(project, guarded=False)
    land(here, "0.csv", FAR_FUTURE)
    warning = (
        "The watermark of 'orders' is 2098-12-31T23:50:00Z, 26,335 days ahead of the processing "
        "clock: arrival 0 moved it there, with an event dated 2099-01-01T00:00:00Z (0.csv#1). "
        "Events before it are late. If that date is wrong, set max_future_skew in the source, then "
        "run `tidemark watermark orders --lower`."
    )
    days = "26,335 days"
    for words in (("ingest", "orders"), ("run", "orders_hourly"), ("status",)):
        told = said(*words)
        ahead = told.partition("2098-12-31T23:50:00Z, ")[2].partition(" ahead of")[0]
        assert warning.replace(days, ahead) in told
    land(here, "1.csv", LATER)
    said("ingest", "orders")
    said("run", "orders_hourly")
    assert "york" not in [row[1] for row in windows() if row[0] == "2026-01-01T10:00:00Z"]

    define(project, guarded=True)
    killed = subprocess.run(
        [Path(sys.executable).with_name("tidemark"), "watermark", "orders", "--lower"],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(project), *sys.path]),
            "TIDEMARK_FAIL_AT": "watermarks",
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    refused = call("ingest", "orders")
    assert refused.exit_code == 2
    for told in (refused.stderr, said("status")):
        assert "`tidemark watermark orders --lower`, begun at" in " ".join(told.split())
    told = said("watermark", "orders", "--lower")
    assert "lowered arrivals 2" in told
    assert "recomputed orders_hourly" in told
    assert "ahead of the processing clock" not in told
    assert status()["watermark"] == "2026-01-01T11:55:00Z"
    assert findings() == []
    assert windows() == [
        ("2026-01-01T09:00:00Z", "york", 32.0, True),
        ("2026-01-01T10:00:00Z", "leeds", 16.0, False),
        ("2026-01-01T10:00:00Z", "york", 4.0, False),
    ]
    assert call("parity", "orders_hourly").exit_code == 0
    land(here, "2.csv", HEADER + "2026-01-01T13:50:00Z,york,1\n")
    said("ingest", "orders")
    said("run", "orders_hourly")
    assert ("2026-01-01T12:00:00Z", "york", 1.0, False) in windows()
    assert call("parity", "orders_hourly").exit_code == 0
    assert "match the definition" in said("watermark", "orders", "--lower")
