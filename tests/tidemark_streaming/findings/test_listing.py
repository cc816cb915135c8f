"""Findings of a home, from its tables and files alone, and how `tidemark status` shows them."""

import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gated.transforms import gated
from helpers.data.judgements import judged, withhold, write
from helpers.data.tables import arrive, commit, position_of
from helpers.data.warehouses import warehouse_without_engine
from helpers.processes.commands import call
from helpers.processes.ending import GONE, end_with_an_error
from tidemark.base.errors import DataError
from tidemark.base.instants import parse_duration
from tidemark.base.settings import Settings
from tidemark.define import aggregates as agg
from tidemark.define.identity.fingerprint import compute_fingerprint
from tidemark.define.identity.parts import describe_parts
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Tumbling
from tidemark.store import operations
from tidemark.store.commits.commit_info import StateCommit
from tidemark.store.commits.coverage import Coverage, TimelinePosition
from tidemark.store.commits.kinds import Increment, Promotion, Rollback
from tidemark.store.lineage import Lineage
from tidemark_streaming.base.foreground import INGEST, SINK
from tidemark_streaming.findings.finding import Kind
from tidemark_streaming.findings.home_state import BROKERS_SECONDS, HomeReader
from tidemark_streaming.findings.listing import list_findings
from tidemark_streaming.ingest.ingest_record import lock_ingest, record_error
from tidemark_streaming.snapshot import tables
from tidemark_streaming.streams import desired_streams
from till.sources import located_payments, movements, orders, paid_orders

ROOT = Path(__file__).parents[3]
HOUR = parse_duration("1 hour")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Return the settings of a home without an engine, with the domains `till` and `gated`."""
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TIDEMARK_REMOTE", "sc://localhost:1")
    monkeypatch.setenv("TIDEMARK_DOMAINS", "till,gated")
    return Settings()


def found_in(settings: Settings) -> list[tuple[str, str, str]]:
    """Return the kind, the level and the node of each finding."""
    state = HomeReader(settings, wait_seconds=BROKERS_SECONDS).read()
    return [(f.kind.value, f.level, f.node) for f in list_findings(state)]


def shown() -> str:
    return " ".join(call("status").stdout.split())


def test_an_empty_home_has_no_findings(settings: Settings) -> None:
    assert found_in(settings) == []
    assert json.loads(call("status", "--json").stdout)["findings"] == []
    assert "what needs attention" not in shown()


def test_quarantined_windows_are_counted_by_expectation(settings: Settings) -> None:
    judged(settings, 0)
    name = "between(most, max_value=5)"
    withhold(settings, (3, "a"), (4, "a"), by=name)
    assert found_in(settings) == [("quarantine", "warning", "asset gated")]
    assert (
        f"2 windows of gated are in quarantine and not published; failed expectations: {name} (2). "
        "`tidemark quarantine list gated` shows them"
    ) in shown()
    withhold(settings, (3, "a"), (4, "a"), by=name, status="discarded")
    assert found_in(settings) == []


FOLLOW = """
import sys, time
from tidemark.base.settings import Settings
from tidemark_streaming.base import foreground
with foreground.record_running(Settings(), foreground.INGEST, "orders"):
    print("runs", flush=True)
    time.sleep(600)
"""


def test_a_killed_ingest_is_a_finding_until_it_runs_again(settings: Settings) -> None:
    command = [sys.executable, "-c", FOLLOW]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        assert found_in(settings) == []
        process.kill()
    assert found_in(settings) == [("stopped_ingest", "error", "source orders")]
    assert "`tidemark ingest orders --follow` should run, but was killed." in shown()


def test_commands_that_ended_with_an_error_are_findings(settings: Settings) -> None:
    end_with_an_error(settings, INGEST, "payments")
    end_with_an_error(settings, SINK, "gated")
    desired_streams.request_stream(settings, "gated")
    kinds = {kind: (level, node) for kind, level, node in found_in(settings)}
    assert kinds == {
        "stopped_ingest": ("error", "source payments"),
        "stopped_sink": ("error", "asset gated"),
        "stopped_stream": ("error", "asset gated"),
    }
    assert shown().count(f"Its error: {GONE}") == 2


def test_a_blocked_source_is_one_finding_although_its_ingest_has_stopped(
    settings: Settings,
) -> None:
    warehouse = warehouse_without_engine(settings)
    end_with_an_error(settings, INGEST, "orders")
    with pytest.raises(DataError), lock_ingest(warehouse, orders) as held, record_error(held):
        raise DataError("All rows of 1.csv fail.")
    assert found_in(settings) == [("blocked_source", "error", "source orders")]


@pytest.mark.parametrize(
    ("kind", "owner"), [("erase", "source orders"), ("drop", "asset gated"), ("lower", "source x")]
)
def test_an_interrupted_operation_is_a_finding_until_it_ends(
    settings: Settings, kind: str, owner: str
) -> None:
    row = {"operation": "o1", "kind": kind, "owner": owner, "phase": operations.BEGUN}
    begun = row | {"at": 1_700_000_000_000_000}
    write(settings, operations.TABLE, [begun], operations.SCHEMA)
    assert found_in(settings) == [("unfinished_operation", "error", owner)]
    assert "begun at 2023-11-14T22:13:20Z, is not finished" in shown()
    write(settings, operations.TABLE, [begun | {"phase": operations.ENDED}], operations.SCHEMA)
    assert found_in(settings) == []


def test_the_side_that_holds_a_join_back_is_named(settings: Settings) -> None:
    marks = {"orders": 10 * HOUR, "payments": 2 * HOUR}
    for base, mark in marks.items():
        arrive(settings, base, 0, 0, newest=mark)
    taken = {"orders": 0, "payments": 0}
    for source in (paid_orders, movements, located_payments):
        watermark = source.watermark_of([marks[base.name] for base in source.base_sources])
        assert watermark is not None
        position = position_of(settings, source, "orders", **taken)
        arrive(settings, source.name, 0, 0, newest=watermark, positions=[position])
    held = [node for kind, _, node in found_in(settings) if kind == Kind.HELD_BACK]
    assert held == ["source paid_orders", "source movements", "source located_payments"]
    assert (
        "payments holds movements back: movements has the watermark 1970-01-01T02:00:00Z, because "
        "payments has no event after 1970-01-01T02:00:00Z; orders has events up to "
        "1970-01-01T10:00:00Z, whose rows wait. `tidemark ingest payments`"
    ) in shown()
    arrive(settings, "payments", 1, 1, newest=10 * HOUR)
    assert Kind.HELD_BACK not in [kind for kind, _, _ in found_in(settings)]


def test_a_join_is_stale_if_a_base_has_another_history(settings: Settings) -> None:
    for base in ("orders", "payments"):
        arrive(settings, base, 0, 1)
    position = position_of(settings, paid_orders, "orders", orders=1, payments=0)
    arrive(settings, "paid_orders", 0, 0, positions=[position])
    assert found_in(settings) == []
    shutil.rmtree(Path(settings.warehouse, settings.database, "orders_timeline"))
    arrive(settings, "orders", 0, 1)
    stale = [("stale", "error", node) for node in ("source paid_orders", "asset unpaid_hourly")]
    assert found_in(settings) == stale
    assert (
        "paid_orders is stale: 'orders' was dropped and ingested again after 'paid_orders' had "
        "read it. Run `tidemark rebuild paid_orders`"
    ) in shown()
    assert "tidemark rebuild paid_orders --promote" in shown()


def by(asset: WindowedTransform) -> dict[str, Any]:
    """Return the fields with which a commit of an asset records its definition."""
    return {"definition": compute_fingerprint(asset), "parts": describe_parts(asset)}


_SINCE_2 = Coverage(TimelinePosition(2, 0, 2, "readings 2"))
_FIRST: dict[str, Any] = {"commit_number": 0, "defined": 0, "after": _SINCE_2}
_SECOND: dict[str, Any] = {"commit_number": 1, "defined": 1, "before": _SINCE_2, "after": _SINCE_2}
_HOURLY = replace(gated, window=Tumbling("1 hour"))
_OTHER_CODE = replace(gated, function=lambda rows: rows.where("value > 0"))


_COMMITS: Mapping[str, tuple[Sequence[StateCommit], bool]] = {
    "the definition in the code": ([Increment(**_FIRST, **by(gated))], False),
    "another function": ([Increment(**_FIRST, **by(_OTHER_CODE))], False),
    "another window": ([Increment(**_FIRST, **by(_HOURLY))], True),
    "another source": (
        [Increment(**_FIRST, **by(replace(gated, source=replace(gated.source, name="others"))))],
        True,
    ),
    "a promotion": (
        [Increment(**_FIRST, **by(_HOURLY)), Promotion(**_SECOND, **by(gated), taken={}, kept={})],
        False,
    ),
    "a rollback to another window": (
        [Increment(**_FIRST, **by(gated)), Rollback(**_SECOND, **by(_HOURLY), taken={})],
        True,
    ),
    "a rollback to another function": (
        [Increment(**_FIRST, **by(gated)), Rollback(**_SECOND, **by(_OTHER_CODE), taken={})],
        True,
    ),
    "a rollback to the definition in the code": (
        [Increment(**_FIRST, **by(_HOURLY)), Rollback(**_SECOND, **by(gated), taken={})],
        False,
    ),
}
"""The commits of an asset, and whether the asset is stale after them."""


@pytest.mark.parametrize("name", _COMMITS)
def test_an_asset_is_stale_if_runs_cant_continue_from_its_definition(
    settings: Settings, name: str
) -> None:
    commits, is_stale = _COMMITS[name]
    arrive(settings, "readings", 0, 2)
    commit(settings, gated, *commits)
    assert found_in(settings) == ([("stale", "error", "asset gated")] if is_stale else [])


def test_a_changed_definition_is_shown_with_its_parts_and_the_commands(settings: Settings) -> None:
    arrive(settings, "readings", 0, 2)
    count = agg.count(where="value > 1\n  AND value < 5")
    where = replace(_HOURLY, aggregates={**gated.aggregates, "n": count}, allowed_lateness=0)
    commit(settings, gated, Increment(**_FIRST, **by(where)))
    text = shown()
    assert (
        "gated is stale: its tables were made by another definition, which you can also restore. "
        "It differs in window (tumbling 1 hour → tumbling 1 minute), aggregate n (count(*) where "
        "value > 1\\n AND value < 5 → count(*)), allowed lateness (0 seconds → 2 minutes). "
    ) in text
    assert (
        "`tidemark diff gated` shows which windows would change. Run `tidemark rebuild "
        "gated`, which computes it again next to the present tables, and then `tidemark rebuild "
        "gated --promote`."
    ) in text


def test_a_definition_is_compared_once_per_change_of_the_tables(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrive(settings, "readings", 0, 2)
    commit(settings, gated, Increment(**_FIRST, **by(_HOURLY)))
    # The modification time of a folder that has just changed proves nothing.
    monkeypatch.setattr(tables, "_SETTLED", -math.inf)
    reader = HomeReader(settings, wait_seconds=BROKERS_SECONDS)
    assert Kind.STALE in [f.kind for f in list_findings(reader.read())]
    monkeypatch.setattr(Lineage, "of_asset", None)
    assert Kind.STALE in [f.kind for f in list_findings(reader.read())]


def test_status_shows_all_else_if_a_module_has_a_definition_error(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "half_broken"
    package.mkdir()
    (package / "__init__.py").touch()
    source = (ROOT / "tests/till/sources.py").read_text().partition("paid_orders = tm.join(")[0]
    for name in ("orders", "payments"):
        source = source.replace(f'name="{name}"', f'name="half_{name}"')
    (package / "sources.py").write_text(source)
    (package / "connectors.py").write_text(
        "from half_broken import sources\n"
        "from tidemark_streaming.connector import Ingestion\n"
        "from tidemark_streaming.files import FileConnector\n"
        "orders = Ingestion(sources.orders, lambda f: FileConnector(sources.orders, f))\n"
    )
    (package / "transforms.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TIDEMARK_DOMAINS", "gated,half_broken,nowhere")
    withhold(settings, (3, "a"), by="between(most, max_value=5)")
    judged(settings, 0)
    result = call("status", "--json")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert [asset["asset"] for asset in told["assets"]] == [gated.name]
    assert "half_orders" in [source["name"] for source in told["sources"]]
    assert [(f["kind"], f["node"]) for f in told["findings"]] == [
        ("definition", "half_broken.transforms"),
        ("definition", "nowhere.sources"),
        ("quarantine", "asset gated"),
    ]
    causes = [f["cause"] for f in told["findings"]]
    assert "transforms.py, line 1: ZeroDivisionError" in causes[0]
    assert "There is no domain package 'nowhere'" in causes[1]


def test_status_shows_all_else_if_a_table_is_damaged(settings: Settings) -> None:
    arrive(settings, "orders", 0, 0)
    withhold(settings, (3, "a"), by="between(most, max_value=5)")
    judged(settings, 0)
    log = Path(settings.warehouse, settings.database, "orders_timeline/_delta_log")
    (newest,) = log.glob("*.json")
    newest.write_text(newest.read_text()[:20])
    assert sorted(found_in(settings)) == [
        ("damaged_table", "error", "home"),
        ("quarantine", "warning", "asset gated"),
    ]
    told = json.loads(call("status", "--json").stdout)
    assert [row["name"] for row in told["sources"]] == ["payments", "payments_in_cents", "readings"]


def test_each_kind_is_explained() -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text()
    table = page.partition("## By finding")[2].partition("\n## ")[0]
    documented = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert documented == [kind.value for kind in Kind]
