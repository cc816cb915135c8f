"""Test the docs against the code: examples run, and tables match."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer
import yaml

import tidemark as tm
from helpers.suite.pages import ROOT, blocks, section
from tidemark.base.settings import FILE, PREFIX, RECORDED, Settings
from tidemark.define.rollup import RollUp
from tidemark_assets.flights.transforms import departures_hourly
from tidemark_streaming import starter
from tidemark_streaming.cli import app
from tidemark_streaming.home import domains
from tidemark_streaming.kafka.decode import decode_records
from tidemark_streaming.kafka.intake import protect_records
from tidemark_streaming.kafka.records import SCHEMA
from tidemark_streaming.payloads import Json


def settings_table() -> str:
    """Return the table of docs/settings.md."""
    lines = ["| setting | variable | default | meaning |", "| --- | --- | --- | --- |"]
    for name, field in Settings.model_fields.items():
        extra = field.json_schema_extra
        assert isinstance(extra, dict)
        value = "" if field.default_factory or field.default is None else field.default
        shown = ", ".join(value) if isinstance(value, tuple) else str(value)
        # TOML spells booleans in lower case.
        shown = shown.lower() if isinstance(value, bool) else shown
        default = f"`{shown}`" if shown else ""
        meaning = f"{field.description} Allowed: {extra['allowed']}."
        lines.append(f"| `{name}` | `{PREFIX}{name.upper()}` | {default} | {meaning} |")
    return "\n".join(lines)


def test_every_asset_of_the_domains_is_documented() -> None:
    document = (ROOT / "docs/sample_domains.md").read_text()
    for asset in domains.load_domains(RECORDED).transforms:
        assert f"| `{asset}` |" in document, asset


def test_every_setting_is_documented() -> None:
    document = (ROOT / "docs/settings.md").read_text()
    assert settings_table() in document, f"docs/settings.md should have:\n{settings_table()}"
    assert FILE in document


def test_each_fault_is_documented_with_existing_tests() -> None:
    page = (ROOT / "docs/failure_recovery.md").read_text()
    told, rest = page.split("## Tests for each fault")
    tried = rest.partition("## ")[0]
    rows = re.compile(r"^\| (?!-|fault )(.+?) \|", re.MULTILINE)
    assert rows.findall(tried) == [*rows.findall(told), "the clock jumps"]
    named = re.findall(r"`(tests/[^`]+\.py)::(\w+)`", page)
    assert named
    for file, test in named:
        assert f"\ndef {test}(" in (ROOT / file).read_text(), f"{file}: {test}"


def test_documented_error_messages_occur_in_the_code() -> None:
    sources = (ROOT / folder for folder in ("platform", "streaming", "assets"))
    trees = (ast.parse(path.read_text()) for each in sources for path in each.rglob("*.py"))
    nodes = (node for tree in trees for node in ast.walk(tree))
    spoken = "\n".join(
        n.value for n in nodes if isinstance(n, ast.Constant) and type(n.value) is str
    )
    rows = section("docs/troubleshooting.md", "By error message")
    quoted = re.findall(r'^\| "(.+?)"', rows, re.MULTILINE)
    assert len(quoted) > 10
    for message in quoted:
        for part in (each.strip(" .,:;()'") for each in message.split("…")):
            assert part in spoken, f"{message}: {part}"


CELL_END = re.compile(r"(?<!\\)\|")
PAGES = ["README.md", *(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))]
OF_OTHER_PROGRAMS = {
    *("--event-time-start", "--event-time-end"),
    *("--help", "--version"),
    *("--class", "--deploy-mode", "--master", "--name", "--properties-file"),
}
"""Options of dbt, of typer, and of `spark-submit`."""


def options_of(command: Any) -> Iterator[str]:  # noqa: ANN401 (click's own)
    """Yield the options of a command and of its subcommands."""
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    for each in getattr(command, "commands", {}).values():
        yield from options_of(each)


@pytest.mark.parametrize("document", PAGES)
def test_commands_and_options_in_the_text_exist(document: str) -> None:
    root: Any = typer.main.get_command(app)
    for code in re.findall(r"`([^`\n]+)`", (ROOT / document).read_text()):
        first, *words = code.split()
        command = root
        if first == "tidemark":
            while words and words[0] in getattr(command, "commands", {}):
                command = command.commands[words.pop(0)]
            assert command is not root or not re.match(r"[a-z]", "".join(words[:1])), code
        elif not first.startswith("--") or document == "docs/benchmarks.md":
            continue
        known = {*options_of(command), *OF_OTHER_PROGRAMS}
        given = re.findall(r"(?<![\w-])--[a-z][a-z-]*", code)
        assert set(given) <= known or command.name == "dbt", code


@pytest.mark.parametrize("document", PAGES)
def test_relative_links_lead_to_files(document: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)", (ROOT / document).read_text()):
        assert ((ROOT / document).parent / target).exists(), f"{document}: {target}"


@pytest.mark.parametrize("document", PAGES)
def test_each_row_of_a_table_has_the_cells_of_its_header(document: str) -> None:
    # Code blocks may contain lines that look like rows.
    text = re.sub(r"^```.*?^```", "", (ROOT / document).read_text(), flags=re.DOTALL | re.MULTILINE)
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = table.splitlines()
        odd = [row for row in rows if len(CELL_END.findall(row)) != len(CELL_END.findall(rows[0]))]
        assert odd == []


def test_the_documented_connector_never_shows_the_password(tmp_path: Path) -> None:
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


def test_the_documented_columns_are_masked_as_the_table_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other tests run the other examples of the page: an engine behind TLS and a deletion."""
    monkeypatch.setenv("TIDEMARK_TOKENIZATION_KEY", "0123456789abcdef0123456789abcdef")
    _, text = python_of("docs/security.md")
    made = dict[str, Any]()
    exec(text, made)
    source = made["customers"]
    value = {"email": "ann@example.com", "card": "4111111111111111", "ssn": "x", "other": "y"}
    record = {"key": b"ann", "value": json.dumps(value).encode(), "headers": [], "chunk": 0}
    records = protect_records(pa.Table.from_pylist([record], SCHEMA), source, None)
    (told,) = decode_records(records, source, Json(), None).to_pylist()
    assert (told["card"], told["ssn"]) == ("***1111", None)
    assert "other" not in told
    (key,) = records["key"].to_pylist()
    for token in (told["email"], key.decode()):
        assert re.fullmatch("[0-9a-f]{32}", token)


def test_the_documented_source_equals_one_with_a_mapping_of_columns() -> None:
    (text,) = python_of("docs/sources.md")
    made: dict[str, Any] = {"tm": tm}
    exec(text, made)
    columns = {"at": "TIMESTAMP", "order_id": "STRING", "amount": "DECIMAL(10,2)"}
    shown = made["orders"].columns
    assert {name: kind.upper() for name, kind in shown.items()} == columns
    for duration in ("10min", "interval 10 minutes"):
        assert tm.BoundedOutOfOrderness(duration) == made["orders"].watermark


@pytest.mark.parametrize(
    "document",
    ["docs/roll_ups.md", "docs/triggers.md", "docs/deduplication.md", "docs/data_quality.md"],
)
def test_documented_parts_of_definitions_are_valid(document: str) -> None:
    known: dict[str, Any] = {"departures_hourly": departures_hourly, "tm": tm}
    parts = [text for language, _, text in blocks(document) if language == "py"]
    assert parts
    for text in parts:
        made = dict[str, Any]()
        exec(text, known, made)
        given = {name: thing for name, thing in made.items() if not isinstance(thing, RollUp)}
        assert replace(departures_hourly, **given)


def test_the_documented_settings_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (text,) = (text for language, _, text in blocks("docs/settings.md") if language == "toml")
    (tmp_path / FILE).write_text(text)
    monkeypatch.chdir(tmp_path)
    settings = Settings()
    assert len(settings.engine_jars) == 2
    assert settings.engine_conf["spark.sql.shuffle.partitions"] == "16"
    assert settings.engine_ui_port == 4040


def test_the_documented_log_line_has_the_fields_of_its_table() -> None:
    (line,) = (text for kind, _, text in blocks("docs/monitoring.md") if kind == "json")
    table = re.search(r"^\| `dead letter` \| `([\w.]+)` \| ([^:]+):", _watching(), re.MULTILINE)
    assert table is not None
    always = {"event", "logger", "level", "timestamp"}
    assert json.loads(line).keys() == {*re.findall(r"`(\w+)`", table[2]), *always}
    assert json.loads(line)["logger"] == table[1]


def _watching() -> str:
    return (ROOT / "docs/monitoring.md").read_text()


def test_the_starter_dbt_project_has_the_documented_macro_settings() -> None:
    (text,) = (text for kind, _, text in blocks("docs/dbt.md") if kind == "yaml")
    shown = yaml.safe_load(text)
    own = Path(starter.__file__).parent / "project" / "dbt_project" / "dbt_project.yml"
    assert shown.items() <= yaml.safe_load(own.read_text()).items()
