"""The documents say what is so: their code runs, their tables are those of the code."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
import yaml

from pages import ROOT, blocks, followed
from tidemark.base.settings import FILE, PREFIX, RECORDED, Settings
from tidemark.define.fingerprint import fingerprint
from tidemark.define.rollup import RollUp
from tidemark.engine import status
from tidemark.engine.ports import free_port
from tidemark_assets.flights.transforms import departures_hourly
from tidemark_streaming import domains, starter
from tidemark_streaming.kafka import KafkaFeed, broker
from tidemark_streaming.kafka.records import SCHEMA
from tidemark_streaming.testing.small_engine import TEST_HOME


def settings_table() -> str:
    """The table of docs/settings.md."""
    lines = ["| setting | variable | default | meaning |", "| --- | --- | --- | --- |"]
    for name, field in Settings.model_fields.items():
        extra = field.json_schema_extra
        assert isinstance(extra, dict)
        value = "" if field.default_factory or field.default is None else field.default
        shown = ", ".join(value) if isinstance(value, tuple) else str(value)
        # As TOML has it.
        shown = shown.lower() if isinstance(value, bool) else shown
        default = f"`{shown}`" if shown else ""
        meaning = f"{field.description} Allowed: {extra['allowed']}."
        lines.append(f"| `{name}` | `{PREFIX}{name.upper()}` | {default} | {meaning} |")
    return "\n".join(lines)


def test_the_readme_shows_the_transform_that_runs() -> None:
    (shown,) = python_of("README.md")
    made = dict[str, Any]()
    exec(shown, made)
    # The one that comes along warns of more.
    own = replace(made["departures_hourly"], expectations=departures_hourly.expectations)
    assert own.description == departures_hourly.description
    assert fingerprint(own) == fingerprint(departures_hourly)
    of_both = [list(map(str, each.expectations)) for each in (made["departures_hourly"], own)]
    assert set(of_both[0]) < set(of_both[1])
    assert len(shown.splitlines()) <= 30


def test_every_asset_of_the_domains_is_documented() -> None:
    document = (ROOT / "docs/domains.md").read_text()
    for asset in domains.load(RECORDED).transforms:
        assert f"| `{asset}` |" in document, asset


def test_every_setting_is_documented() -> None:
    document = (ROOT / "docs/settings.md").read_text()
    assert settings_table() in document, f"docs/settings.md should have:\n{settings_table()}"
    assert FILE in document


def test_each_fault_is_told_with_tests_that_exist() -> None:
    page = (ROOT / "docs/faults.md").read_text()
    told, rest = page.split("## What tries them")
    tried = rest.partition("## ")[0]
    rows = re.compile(r"^\| (?!-|fault )(.+?) \|", re.MULTILINE)
    assert rows.findall(tried) == [*rows.findall(told), "the clock jumps"]
    named = re.findall(r"`(tests/[^`]+\.py)::(\w+)`", page)
    assert named
    for file, test in named:
        assert f"\ndef {test}(" in (ROOT / file).read_text(), f"{file}: {test}"


@pytest.mark.parametrize(
    "document", ["README.md", *(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))]
)
def test_links_lead_somewhere(document: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)", (ROOT / document).read_text()):
        assert ((ROOT / document).parent / target).exists(), f"{document}: {target}"


def environment(engine: Settings, tmp_path: Path) -> dict[str, str]:
    """Of a user whose tables are in a database of their own."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TIDEMARK_HOME": str(engine.home),
        "TIDEMARK_ENGINE_PORT": str(engine.engine_port),
        "TIDEMARK_ENGINE_MEMORY": engine.engine_memory,
        "TIDEMARK_LANDING": str(tmp_path / ".tidemark" / "landing"),
        "TIDEMARK_DATABASE": f"tutorial_{uuid4().hex[:12]}",
    }


def test_the_source_of_a_delta_table_shown_runs(engine: Settings, tmp_path: Path) -> None:
    said = followed("docs/delta.md", tmp_path, environment(engine, tmp_path))
    assert re.search(r"last_arrival +2\b", said), said


def test_the_windows_shown_are_read(engine: Settings, tmp_path: Path) -> None:
    env = environment(engine, tmp_path)
    del env["TIDEMARK_LANDING"]
    said = followed("docs/reading.md", tmp_path, env)
    assert "2026-01-01T09:00:00Z,2026-01-01T10:00:00Z,york,36.0,12.0,20.0" in said, said
    assert re.search(r"\n0 2026-01-01 09:00:00\+00:00 +(york|leeds)", said), said
    assert "4 windows in version" in said
    # Polars and Spark say the same of the windows that are final.
    assert re.search(r"│ leeds ┆ 8.5 +│\n│ york +┆ 36.0 +│", said), said
    assert re.search(r"\|leeds\| +8.5\|\n\| york\| +36.0\|", said), said
    # Each window is counted again by DuckDB, from the log.
    assert len(re.findall(r"│ +\d+\.\d │ +[123] │", said)) == 4, said


def test_the_definition_of_the_comparison_runs(tmp_path: Path) -> None:
    said = followed("docs/comparison.md", tmp_path, dict(os.environ))
    assert "early every 1 minute" in said


def test_the_feed_of_your_own_shown_runs(engine: Settings, tmp_path: Path) -> None:
    said = followed("docs/feeds.md", tmp_path, environment(engine, tmp_path))
    assert re.search(r"arrivals +3 *\n", said), said
    assert re.search(r"events +2,?500 *\n", said), said
    assert "equal: 8 rows of 'tickets_hourly'" in said, said


@pytest.fixture(scope="module")
def broker_port(engine: Settings) -> Iterator[int]:
    """Where the broker of the pages that start one listens; it is stopped after the last."""
    settings = engine.model_copy(update={"kafka_port": free_port()})
    yield settings.kafka_port
    broker.process(settings).stop()


@pytest.fixture
def beside_a_broker(engine: Settings, tmp_path: Path, broker_port: int) -> dict[str, str]:
    return environment(engine, tmp_path) | {"TIDEMARK_KAFKA_PORT": str(broker_port)}


def test_the_source_of_kafka_shown_runs(beside_a_broker: dict[str, str], tmp_path: Path) -> None:
    """And what can't be decoded comes back, which is shown of the same records."""
    said = followed("docs/kafka.md", tmp_path, beside_a_broker)
    assert "equal: 3 rows of 'clicks_by_minute'" in " ".join(said.split()), said
    assert re.search(r'"offsets":\{"0":\[0,25\],"1":\[0,24\]\}', said), said
    assert re.search(r"clicks-0-24\|not JSON *\|It is no JSON object", said), said
    said = followed("docs/dead_letters.md", tmp_path, beside_a_broker)
    assert "The field 'at' is no" in said, said
    assert said.count("1 came back, 0 still can't be decoded") == 2, said
    assert "0 came back, 0 still" in said, said


def test_the_lane_shown_runs(beside_a_broker: dict[str, str], tmp_path: Path) -> None:
    said = followed("docs/lane.md", tmp_path, beside_a_broker)
    assert re.search(r"payments_airport b'airport' .*\*\*\*9012.*12\.5", said), said
    assert re.search(r"payments_elsewhere b'harbour' ", said), said
    assert re.search(r"payments_seen_dead_letters .*It is no JSON object", said), said


def test_the_feed_shown_has_no_password_but_where_it_is(tmp_path: Path) -> None:
    text, _ = python_of("docs/security.md")
    done = subprocess.run(
        [sys.executable, "-c", text],
        cwd=tmp_path,
        env={**os.environ, "KAFKA_PASSWORD": "none-of-anybodys"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "'sasl.password': secret('env:KAFKA_PASSWORD')" in done.stdout
    assert "none-of-anybodys" not in done.stdout


def python_of(document: str) -> list[str]:
    return [text for language, _, text in blocks(document) if language == "python"]


def test_the_columns_shown_are_protected_as_the_table_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else is shown there, an engine behind TLS and a deletion, other tests run."""
    monkeypatch.setenv("TIDEMARK_TOKENISATION_KEY", "0123456789abcdef0123456789abcdef")
    _, text = python_of("docs/security.md")
    made = dict[str, Any]()
    exec(text, made)
    feed = KafkaFeed(made["customers"], ["customers"])
    value = {"email": "ann@example.com", "card": "4111111111111111", "ssn": "x", "other": "y"}
    record = {"key": b"ann", "value": json.dumps(value).encode(), "headers": [], "chunk": 0}
    (told,) = feed._protected(pa.Table.from_pylist([record], SCHEMA)).to_pylist()
    kept = json.loads(told["value"])
    assert (kept.keys(), kept["card"], kept["ssn"]) == ({"email", "card", "ssn"}, "***1111", None)
    for token in (kept["email"], told["key"].decode()):
        assert re.fullmatch("[0-9a-f]{32}", token)


def test_the_payloads_shown_run(engine: Settings, tmp_path: Path) -> None:
    said = followed("docs/payloads.md", tmp_path, environment(engine, tmp_path))
    assert re.search(r"2026-01-01 00:00:00 *\|12\.50\|NULL\|NULL", said), said
    assert "by schema 7: it ends too early." in said
    assert "There is no schema with the id 8, which it names." in said


def test_the_way_out_to_kafka_shown_runs(beside_a_broker: dict[str, str], tmp_path: Path) -> None:
    said = followed("docs/kafka_out.md", tmp_path, beside_a_broker)
    assert re.search(r"topic\s+visits_by_minute\s*\n\s*records\s+4\s*\n", said), said
    assert "2026-01-01T00:00:00Z 2026-01-01T00:01:00Z /home 13\n" in said, said
    assert "in all 25\n" in said, said


def test_the_change_of_a_definition_shown_runs(engine: Settings, tmp_path: Path) -> None:
    env = environment(engine, tmp_path)
    said = " ".join(followed("docs/evolution.md", tmp_path, env).split())
    assert "the same: the tables of 'warmth' are made by the definition in the code" in said, said
    assert "aggregate mean" in said
    assert re.search(r"Of 2 rows through arrival \d: 2 changed\.", said), said
    assert "warm: 2 values mean: in every row" in said
    assert "equal: 2 rows of 'warmth'" in said
    assert said.count("the same: the tables of 'warmth'") == 2
    assert '"schema_version": 2' in said, said
    assert re.search(r"table warmth__tried arrivals 2 to 3 windows \d", said), said


def test_the_preparation_shown_runs(engine: Settings, tmp_path: Path) -> None:
    followed("docs/preparation.md", tmp_path, environment(engine, tmp_path))


def test_the_test_kit_shown_runs_on_an_engine_of_its_own(engine: Settings, tmp_path: Path) -> None:
    env = environment(engine, tmp_path)
    env.pop(TEST_HOME, None)
    temp = tmp_path / "temp"
    env |= {"PYTEST_ADDOPTS": f"--basetemp={temp} -p no:cacheprovider"}
    said = followed("docs/testing_transforms.md", tmp_path, env)
    assert "2 passed" in said, said
    assert "◆york 4" in said, said
    homes = [pids.parent for pids in temp.glob("**/pids")]
    assert homes == [temp / "tidemark"]
    assert status(Settings(home=homes[0])).pid is None


def test_the_scenario_shown_comes_out_as_it_says(engine: Settings, tmp_path: Path) -> None:
    said = followed("docs/scenarios.md", tmp_path, environment(engine, tmp_path))
    assert "◆a 24" in said, said


@pytest.mark.parametrize("document", ["docs/model.md", "docs/firings.md", "docs/quality.md"])
def test_the_parts_of_definitions_shown_are_lawful(document: str) -> None:
    known: dict[str, Any] = {"departures_hourly": departures_hourly}
    for module in ("quality", "rollup", "trigger", "window"):
        known |= vars(import_module(f"tidemark.{module}"))
    parts = [text for language, _, text in blocks(document) if language == "py"]
    assert parts
    for text in parts:
        made = dict[str, Any]()
        exec(text, known, made)
        given = {name: thing for name, thing in made.items() if not isinstance(thing, RollUp)}
        assert replace(departures_hourly, **given)


def test_the_settings_shown_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = (text for language, _, text in blocks("docs/settings.md") if language == "toml")
    (tmp_path / FILE).write_text(text)
    monkeypatch.chdir(tmp_path)
    settings = Settings()
    assert len(settings.engine_jars) == 2
    assert settings.engine_conf["spark.sql.shuffle.partitions"] == "16"
    assert settings.engine_ui_port == 4040


def test_a_line_of_the_log_shown_has_the_facts_that_its_table_says() -> None:
    (line,) = (text for kind, _, text in blocks("docs/watching.md") if kind == "json")
    table = re.search(r"^\| `dead letter` \| `([\w.]+)` \| ([^:]+):", _watching(), re.MULTILINE)
    assert table is not None
    always = {"event", "logger", "level", "timestamp"}
    assert json.loads(line).keys() == {*re.findall(r"`(\w+)`", table[2]), *always}
    assert json.loads(line)["logger"] == table[1]


def _watching() -> str:
    return (ROOT / "docs/watching.md").read_text()


def test_a_dbt_project_takes_macros_from_where_docs_marts_md_says() -> None:
    (text,) = (text for kind, _, text in blocks("docs/marts.md") if kind == "yaml")
    shown = yaml.safe_load(text)
    own = Path(starter.__file__).parent / "project" / "dbt_project" / "dbt_project.yml"
    assert shown.items() <= yaml.safe_load(own.read_text()).items()
