"""`tidemark fsck` reports damage, and how to recover from it, without an engine."""

import json
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tidemark.define.tables import LEDGER
from tidemark.store.integrity.file_faults import log_entries
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.cli import app

ROWS = pa.table({"n": pa.array([1], pa.int64())})


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of a ledger with three commits, the last of them truncated."""
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path))
    store = Warehouse(cast("Any", None), str(tmp_path / "warehouse"), registered=False)
    store.ensure_table(LEDGER, ROWS)
    for _ in range(2):
        store.append_rows(ROWS, LEDGER)
    place = Path(store.path_of(LEDGER))
    newest = log_entries(str(place))[-1]
    newest.write_bytes(newest.read_bytes()[:20])
    return place


def test_damage_is_reported(ledger: Path) -> None:
    found = CliRunner().invoke(app, ["fsck", "--json"])
    assert found.exit_code == 1
    (damage,) = json.loads(found.stdout)
    assert damage["table"] == ledger.name
    assert damage["problem"] == "has a truncated or empty commit (version 2)"
    status = CliRunner().invoke(app, ["status"])
    assert status.exit_code == 0
    shown = " ".join(status.stdout.split())
    assert "Table 'runs' has a truncated or empty commit (version 2)" in shown
    assert "`tidemark fsck` lists all such tables" in shown
    printed = CliRunner().invoke(app, ["fsck"])
    assert "Restore the tables from a backup" in " ".join(printed.stderr.split())
    assert CliRunner().invoke(app, ["fsck", "--repair"]).exit_code == 2
    # Nothing was changed.
    assert [int(entry.stem) for entry in log_entries(str(ledger))] == [0, 1, 2]
