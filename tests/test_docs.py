"""The documents say what is so: their code runs, their tables are those of the code."""

import os
import re
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from pages import ROOT, blocks, followed
from tidemark.base.settings import FILE, PREFIX, RECORDED, Settings
from tidemark.engine import status
from tidemark.engine.connect import free_port
from tidemark.store.warehouse import Warehouse
from tidemark_streaming import domains
from tidemark_streaming.kafka import broker
from tidemark_streaming.scenario.compare import differences
from tidemark_streaming.scenario.parse import load
from tidemark_streaming.scenario.simulate import simulate
from tidemark_streaming.testing.small_engine import TEST_HOME


def settings_table() -> str:
    """The table of docs/settings.md."""
    lines = ["| setting | variable | default | meaning |", "| --- | --- | --- | --- |"]
    for name, field in Settings.model_fields.items():
        extra = field.json_schema_extra
        assert isinstance(extra, dict)
        value = "" if field.default_factory or field.default is None else field.default
        shown = ", ".join(value) if isinstance(value, tuple) else str(value)
        default = f"`{shown}`" if shown else ""
        meaning = f"{field.description} Allowed: {extra['allowed']}."
        lines.append(f"| `{name}` | `{PREFIX}{name.upper()}` | {default} | {meaning} |")
    return "\n".join(lines)


def test_the_readme_shows_the_transform_that_runs() -> None:
    transform = (ROOT / "assets/tidemark_assets/flights/transforms.py").read_text()
    (shown,) = (text for language, _, text in blocks("README.md") if language == "python")
    assert shown in transform
    assert len(shown.splitlines()) <= 20


def test_every_asset_of_the_domains_is_documented() -> None:
    document = (ROOT / "docs/domains.md").read_text()
    for asset in domains.load(RECORDED).transforms:
        assert f"| `{asset}` |" in document, asset


def test_every_setting_is_documented() -> None:
    document = (ROOT / "docs/settings.md").read_text()
    assert settings_table() in document, f"docs/settings.md should have:\n{settings_table()}"
    assert FILE in document


@pytest.mark.parametrize(
    "document", ["README.md", *(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))]
)
def test_links_lead_somewhere(document: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)", (ROOT / document).read_text()):
        assert ((ROOT / document).parent / target).exists(), f"{document}: {target}"


def environment(engine: Settings, tmp_path: Path, domain: str) -> dict[str, str]:
    """Of a user whose package lies in the folder, and whose tables are in a database of its own."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(tmp_path),
        "TIDEMARK_HOME": str(engine.home),
        "TIDEMARK_ENGINE_PORT": str(engine.engine_port),
        "TIDEMARK_ENGINE_MEMORY": engine.engine_memory,
        "TIDEMARK_LANDING": str(tmp_path / ".tidemark" / "landing"),
        "TIDEMARK_DATABASE": f"tutorial_{uuid4().hex[:12]}",
        "TIDEMARK_DOMAINS": domain,
    }


def test_the_source_of_a_delta_table_shown_runs(engine: Settings, tmp_path: Path) -> None:
    said = followed("docs/delta.md", tmp_path, environment(engine, tmp_path, "shop"))
    assert re.search(r"last_arrival +2\b", said), said


def followed_beside_a_broker(document: str, engine: Settings, tmp_path: Path, domain: str) -> str:
    """What the commands of a document say that starts a broker itself."""
    settings = engine.model_copy(update={"kafka_port": free_port()})
    env = environment(engine, tmp_path, domain)
    env |= {"TIDEMARK_KAFKA_PORT": str(settings.kafka_port)}
    try:
        return followed(document, tmp_path, env)
    finally:
        broker.process(settings).stop()


def test_the_source_of_kafka_shown_runs(engine: Settings, tmp_path: Path) -> None:
    said = followed_beside_a_broker("docs/kafka.md", engine, tmp_path, "clicks")
    assert "3 rows" in said or re.search(r"equal", said), said
    assert re.search(r'"offsets":\{"0":\[0,25\],"1":\[0,24\]\}', said), said
    assert re.search(r"clicks-0-24\|not JSON *\|It is no JSON object", said), said


def test_the_feed_shown_has_no_password_but_where_it_is(tmp_path: Path) -> None:
    text = next(text for language, _, text in blocks("docs/security.md") if language == "python")
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


def test_the_payloads_shown_run(engine: Settings, tmp_path: Path) -> None:
    said = followed("docs/payloads.md", tmp_path, environment(engine, tmp_path, "orders"))
    assert re.search(r"2026-01-01 00:00:00 *\|12\.50\|NULL\|NULL", said), said
    assert "by schema 7: it ends too early." in said
    assert "There is no schema with the id 8, which it names." in said


def test_the_way_out_to_kafka_shown_runs(engine: Settings, tmp_path: Path) -> None:
    said = followed_beside_a_broker("docs/kafka_out.md", engine, tmp_path, "visits")
    assert re.search(r"topic\s+visits_by_minute\s*\n\s*records\s+4\s*\n", said), said
    assert "2026-01-01T00:00:00Z 2026-01-01T00:01:00Z /home 13\n" in said, said
    assert "in all 25\n" in said, said


def test_the_change_of_a_definition_shown_runs(engine: Settings, tmp_path: Path) -> None:
    env = environment(engine, tmp_path, "evolving")
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
    (_, file, definition), (_, _, trial) = blocks("docs/preparation.md")
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).write_text(definition)
    env = environment(engine, tmp_path, "trips")
    subprocess.run([sys.executable, "-c", trial], cwd=tmp_path, env=env, check=True)


def test_the_test_kit_shown_runs_on_an_engine_of_its_own(engine: Settings, tmp_path: Path) -> None:
    env = environment(engine, tmp_path, "shop")
    env.pop(TEST_HOME, None)
    temp = tmp_path / "temp"
    env |= {"PYTEST_ADDOPTS": f"--basetemp={temp} -p no:cacheprovider"}
    said = followed("docs/testing_transforms.md", tmp_path, env)
    assert "2 passed" in said, said
    assert "◆york 4" in said, said
    homes = [pids.parent for pids in temp.glob("**/pids")]
    assert homes == [temp / "tidemark"]
    assert status(Settings(home=homes[0])).pid is None


def test_the_scenario_shown_comes_out_as_it_says(warehouse: Warehouse, tmp_path: Path) -> None:
    (shown,) = (text for kind, _, text in blocks("docs/scenarios.md") if kind == "yaml")
    path = tmp_path / "scenario.yaml"
    path.write_text(shown)
    scenario = load(path)
    assert scenario.expect is not None
    (result,) = simulate(warehouse, scenario, 2)
    assert differences(scenario.expect, result) == []
