"""`tidemark new` writes a project completely or not at all, with the chosen names."""

import ast
import csv
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.processes.commands import call
from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.project import python_path
from tidemark.define.tidemark_columns import ARRIVAL_COLUMNS, LATE_COLUMNS
from tidemark_streaming.starter import write as starter
from tidemark_streaming.starter.choices import Choices, check_events

ROOT = Path(__file__).parents[3]
TEMPLATE = ROOT / "streaming/tidemark_streaming/starter/project"
NOON = "2026-01-01T12:00:00Z"
OWN = "taken,user,device,watts\n2025-12-30T23:30:00Z,7,a,3\n2026-01-02T10:00:00Z,8,b,4\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder and return it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def texts(folder: Path) -> str:
    """Return the names and contents of all files in a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return "\n".join(f"{path.relative_to(folder)}\n{path.read_text()}" for path in files)


def test_with_default_names_the_project_equals_the_template(here: Path) -> None:
    assert call("new", "shop").exit_code == 0
    for path in (path for path in TEMPLATE.rglob("*.*") if "__pycache__" not in path.parts):
        if path.is_file():
            assert (here / "shop" / path.relative_to(TEMPLATE)).read_text() == path.read_text()
    landed = sorted(path.name for path in (here / "shop/landing/orders").iterdir())
    assert landed == ["1.csv", "2.csv", "3.csv"]
    assert [path.name for path in here.iterdir()] == ["shop"]


def test_events_cannot_have_a_name_that_the_project_imports() -> None:
    modules = [module.read_text() for module in TEMPLATE.parent.glob("*/shop/*.py")]
    imported = {
        alias.asname or alias.name
        for module in modules
        if "import orders" in module
        for node in ast.walk(ast.parse(module))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    names = {name for name in imported if name.islower()} - {"orders"}
    assert {"tm"} <= names
    for name in names:
        with pytest.raises(DefinitionError, match="already uses that name"):
            check_events(name)


@pytest.mark.parametrize("kind", ["files", "kafka"])
def test_the_projects_package_is_found_in_its_folder(
    kind: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("new", "shop", f"--{kind}").exit_code == 0
    monkeypatch.delenv("PYTHONPATH", raising=False)
    command = [Path(sys.executable).with_name("tidemark"), "status", "--json"]
    free = {**os.environ, "TIDEMARK_KAFKA_PORT": "1"}
    done = subprocess.run(command, cwd=here / "shop", env=free, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [source["name"] for source in json.loads(done.stdout)["sources"]] == ["orders"]
    assert python_path() == {}
    monkeypatch.chdir(here / "shop")
    assert python_path() == {"PYTHONPATH": str(here / "shop")}


@pytest.mark.parametrize("kind", ["--files", "--kafka"])
def test_custom_names_are_used_everywhere_and_the_code_is_clean(kind: str, here: Path) -> None:
    names = {"events": "readings", "time": "takenAt", "key": "device", "value": "watts"}
    options = [part for name, given in names.items() for part in (f"--{name}", given)]
    assert call("new", "house", kind, *options).exit_code == 0
    written = texts(here / "house")
    for name in ("shop", "orders", "ordered_at", "city", "amount"):
        assert name not in written
    assert "def readings_hourly(readings: DataFrame)" in written
    assert ("KafkaConnector(readings" in written) == (kind == "--kafka")
    checks = [["check", "--isolated", "--select", "E,F,I"], ["format", "--check", "--isolated"]]
    for check in checks:
        ruff = [
            Path(sys.executable).with_name("ruff"),
            *check,
            "--line-length",
            "100",
            "--no-cache",
        ]
        done = subprocess.run([*ruff, "."], cwd=here / "house", capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_a_csv_file_defines_columns_start_date_and_events(here: Path) -> None:
    (here / "own.csv").write_text(OWN)
    assert call("new", "house", "--from-csv", "own.csv", "--events", "readings").exit_code == 0
    house = here / "house"
    kinds = '"taken": "TIMESTAMP",\n        "user": "BIGINT",\n        "device": "STRING",\n'
    sources = (house / "house/sources.py").read_text()
    assert f'{kinds}        "watts": "DOUBLE",\n    }}' not in sources
    assert call("new", "home", "--from-csv", "own.csv", "--value", "watts").exit_code == 0
    assert (
        f'{kinds}        "watts": "DOUBLE",\n    }}' in (here / "home/home/sources.py").read_text()
    )
    assert 'start_date="2025-12-30"' in (house / "house/definitions.py").read_text()
    assert [path.name for path in (house / "landing/readings").iterdir()] == ["own.csv"]
    assert (house / "landing/readings/own.csv").read_text() == OWN


def test_bad_lines_in_a_csv_file_are_reported(here: Path) -> None:
    good = "".join(f"{n},2026-01-{n:02}T09:00:00Z,york,{n}.5\n" for n in range(10, 30))
    bad = "30,2026-01-30T09:00:00Z,york,much\n31,yesterday,york,1.5\n32,york\n33,a,b,c,d,e\n"
    (here / "own.csv").write_text(f"order_id,at,city,amount\n{good}{bad}")
    result = call("new", "house", "--from-csv", "own.csv")
    assert result.exit_code == 0, result.stderr
    assert (
        "own.csv has 1 line that can't be decoded (the record has 2 fields instead of 4), 1 line "
        "that can't be decoded (the record has 6 fields instead of 4), 1 row of 'at' without a "
        "valid TIMESTAMP, 1 row of 'amount' without a valid DOUBLE: `tidemark ingest` will write "
        "them to the dead letters"
    ) in result.stdout
    sources = (here / "house/house/sources.py").read_text()
    assert '"at": "TIMESTAMP"' in sources
    assert '"amount": "DOUBLE"' in sources
    assert 'start_date="2026-01-10"' in (here / "house/house/definitions.py").read_text()
    assert (here / "house/landing/orders/own.csv").read_text().endswith(bad)


ODD = (
    *("order id", 'say "hi"', "a.b", "it's", "€/kg", "\\1", "back\\", "{x}", "#", "\N{SNOWMAN}"),
    '": "STRING"}, event_time="", watermark=__import__("os").abort()) #',
)


def test_column_names_in_a_header_are_never_code(here: Path) -> None:
    with (here / "own.csv").open("w", newline="") as file:
        columns, row = ["at", "city", "pounds", *ODD], [NOON, "york", "2", *"abcdefghijk"]
        csv.writer(file).writerows([columns, row])
    assert call("new", "house", "--from-csv", "own.csv").exit_code == 0
    command = [sys.executable, "-c", "from house.sources import orders; print([*orders.columns])"]
    done = subprocess.run(command, cwd=here / "house", capture_output=True, text=True, check=True)
    assert done.stdout == f"{['at', 'city', 'pounds', *ODD]}\n"


def test_default_columns_avoid_ids_and_are_reported(here: Path) -> None:
    columns = "order_id,placed at,sku_id,customerID,order no,placed,shop,pieces,uuid"
    row = f"1,{NOON},a,b,7,{NOON},york,3,9"
    (here / "own.csv").write_text(f"{columns}\n{row}\n")
    said = call("new", "house", "--from-csv", "own.csv").stdout
    assert "windows: pieces by shop and hour of placed; --value, --key and --time choose" in said
    assert call("new", "home", "--from-csv", "own.csv", "--value", "order_id").exit_code == 0
    assert 'agg.sum("order_id")' in (here / "home/home/transforms.py").read_text()
    (here / "ids.csv").write_text(f"id,at,shop_id\n1,{NOON},a\n")
    assert (
        "windows: id by shop_id and hour of at;"
        in call("new", "hut", "--from-csv", "ids.csv").stdout
    )


@pytest.mark.parametrize("kind", ["--files", "--kafka"])
def test_new_prints_the_commands_of_the_projects_readme(kind: str, here: Path) -> None:
    said = call("new", "shop", kind).stdout
    page = (here / "shop/README.md").read_text()
    commands = page.partition("```sh\n")[2].partition("```")[0]
    assert said == f"created: shop/\n\ncd shop\n{commands}"
    assert "tidemark ingest orders" in commands
    assert "cd " not in page


@pytest.mark.parametrize("column", [*ARRIVAL_COLUMNS, *LATE_COLUMNS, "Reason"])
def test_a_column_named_like_a_reserved_one_is_renamed(column: str, here: Path) -> None:
    other = f"own_own_{column.lower()}"
    header = f"at,city,amount,{column},own_{column.lower()}"
    (here / "own.csv").write_text(f"{header}\n{NOON},york,1,x,y\n")
    assert call("new", "house", "--from-csv", "own.csv").exit_code == 0
    namespace: dict[str, Any] = {}
    exec((here / "house/house/sources.py").read_text(), namespace)
    source = namespace["orders"]
    assert source.rename == {column: other}
    assert list(source.record_fields) == header.split(",")


def test_an_invalid_column_name_is_refused_before_writing(here: Path) -> None:
    (here / "own.csv").write_text(f"at,city,amount,_Tidemark_x\n{NOON},york,1,x\n")
    result = call("new", "house", "--from-csv", "own.csv")
    said = " ".join(result.stderr.split())
    assert (result.exit_code, [path.name for path in here.iterdir()]) == (2, ["own.csv"])
    assert said == (
        "error: Column '_Tidemark_x' (number 4 of 'own.csv') begins with '_tidemark_', which is "
        "reserved for Tidemark's helper columns: rename it in the header."
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("", "A project needs a name, for example `tidemark new shop`."),
        ("Shop", "'Shop' is not a valid name for a project: use up to 40 lowercase"),
        ("sh-op", "'sh-op' is not a valid name for a project: use up to 40 lowercase"),
        ("class", "'class' is not a valid name for a project: it is a Python keyword."),
        ("platform", "a Python module of that name already exists."),
        ("pandas", "a Python module of that name already exists."),
        ("tests", "name for a project: a folder of the project has that name."),
        ("there", "already exists: choose another name, or work in another folder."),
        ("shop --events import", "'import' is not a valid name for a source of events"),
        ("shop --events tm", "the project's code already uses that name."),
        ("shop --key final", "the project's tables already have a column of that name."),
        ("shop --key reason", "the project's tables already have a column of that name."),
        ("shop --key amount", "three different columns (got 'ordered_at', 'amount' and 'amount')"),
        ("shop --value a-b", "'a-b' is not a valid name for a column: use letters, digits and"),
        ("shop --from-csv nothing.csv", "There is no file 'nothing.csv'."),
        ("shop --from-csv there/flat.csv", "a column of times, such as 2026-01-31T09:30:00Z, but"),
        ("shop --from-csv own.csv --key user", "fits --key; choose one of: device."),
        ("shop --from-csv own.csv --key a-b", "'a-b' is not a valid name for a column: use"),
        (
            "shop --from-csv there/odd.csv",
            "has columns of numbers, but the project can't use their names. For example, 'n o' is "
            "not a valid name: use letters",
        ),
        (
            "shop --from-csv there/twice.csv",
            "Column 'At' (number 1 of 'there/twice.csv') occurs twice",
        ),
        ("shop --from-csv there/none.csv", "Column '' (number 2 of 'there/none.csv') has no name"),
        ("shop --from-csv there/line.csv", "has a name with a character that"),
        ("shop --from-csv there/tick.csv", "has a name with a character that"),
        ("shop --from-csv own.csv --kafka", "--from-csv can't be used with --kafka"),
    ],
)
def test_invalid_arguments_are_refused_and_nothing_is_written(
    arguments: str, sentence: str, here: Path
) -> None:
    (here / "there").mkdir()
    (here / "there/flat.csv").write_text("a,b\nx,1\n")
    for name, header in (
        ("odd", "n o"),
        ("twice", "at"),
        ("none", " "),
        ("tick", "a`b"),
        ("line", "a\nb"),
    ):
        (here / f"there/{name}.csv").write_text(f'At,"{header}",city\n{NOON},1,york\n')
    (here / "own.csv").write_text(OWN)
    result = call("new", *arguments.split())
    said = " ".join(result.stderr.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert sentence in said
    assert said.startswith("error: ")
    assert said.endswith(".")
    assert sorted(path.name for path in here.iterdir()) == ["own.csv", "there"]


def test_a_failed_write_leaves_no_files(here: Path) -> None:
    with pytest.raises(DataError, match=r"can't be written in .*: no such file or directory"):
        starter.write_project(Choices("shop"), here, sample=here / "gone.csv")
    assert list(here.iterdir()) == []


def test_in_a_terminal_new_prompts_until_answers_are_valid(here: Path) -> None:
    ours, theirs = pty.openpty()
    command = [Path(sys.executable).with_name("tidemark"), "new"]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, b"class\nhouse\n\nreadings\n\n\nwatts\n")
    said = b""
    try:
        while part := os.read(ours, 4096):
            said += part
    except OSError:
        # The terminal closes with its last process.
        pass
    os.close(ours)
    assert process.wait() == 0, said.decode()
    assert b"it is a Python keyword" in said
    assert b"Read events from 'files' or from 'kafka' [files]" in said
    transforms = (here / "house/house/transforms.py").read_text()
    assert "def readings_hourly" in transforms
    assert 'agg.sum("watts")' in transforms
