"""The definition of the README is run over its events, and has the documented output."""

import importlib.util
from pathlib import Path
from types import ModuleType

from helpers.suite.pages import fences
from tidemark.testing import Trials


def load_definition(folder: Path, text: str) -> ModuleType:
    # A function is identified by its source, which must be in a file.
    file = folder / "readme_orders.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parse_table(text: str) -> list[dict[str, str]]:
    """Return the rows of a documented table. Two spaces separate its columns."""
    header, *lines = (line.split("  ") for line in text.splitlines())
    columns = [cell.strip() for cell in header if cell]
    rows = list[dict[str, str]]()
    for line in lines:
        cells = [cell.strip() for cell in line if cell]
        rows.append(dict(zip(columns, cells, strict=True)))
    return rows


def test_the_definition_of_the_readme_has_the_documented_output(
    tidemark_scenario: Trials, tmp_path: Path
) -> None:
    own = [block for block in fences("README.md") if Path(__file__).name in block.mark]
    definition, events, windows = (block.text for block in own)
    assert len(definition.splitlines()) <= 25
    asset = load_definition(tmp_path, definition).orders_hourly
    arrivals: dict[str, list[dict[str, object]]] = {}
    for row in parse_table(events):
        file = row.pop("file")
        arrivals.setdefault(file, []).append({**row, "id": int(row["id"])})
    trial = tidemark_scenario(asset, list(arrivals.values()), ends=False)
    counted = ("orders", "late_events", "revision")
    expected = list[dict[str, object]]()
    for row in parse_table(windows):
        numbers = {column: int(row[column]) for column in counted}
        expected.append({**row, **numbers, "final": row["final"] == "true"})
    trial.expect(windows=expected)
    assert len(trial.windows) == len(expected) == 2
