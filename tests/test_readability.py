"""`tools/readability.py`, with which `make lint` refuses code that reads worse than before."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "readability.py"

PLAIN = """
def read_rows(path: str) -> list[str]:
    # The last line has no end.
    text = open(path).read()
    rows = text.splitlines()
    return rows
"""
DENSE = """
def rows(at: str) -> list[str]:
    found, odd = [each for each in open(at)], []
    return print(*found) if found else odd
"""


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the tool, for a package in a folder of its own whose figures are recorded."""
    spec = importlib.util.spec_from_file_location("readability", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "readability", module)
    spec.loader.exec_module(module)
    for name in module.PACKAGE:
        (tmp_path / name).mkdir()
    (tmp_path / "platform" / "plain.py").write_text(PLAIN)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "RECORD", tmp_path / "readability.toml")
    assert module.main(["--record"]) == 0
    return module


def test_code_as_readable_as_before_is_accepted(
    tool: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    (tool.ROOT / "assets" / "plain.py").write_text(PLAIN)
    assert tool.main([]) == 0
    assert "got worse" not in capsys.readouterr().out


def test_dense_code_is_refused_with_each_figure_that_got_worse(
    tool: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    (tool.ROOT / "assets" / "dense.py").write_text(DENSE)
    assert tool.main([]) == 1
    refused = [line for line in capsys.readouterr().out.splitlines() if "got worse" in line]
    titles = [measure.title for measure in tool.MEASURES.values()]
    assert [line.partition(" got worse")[0] for line in refused] == titles


def test_the_list_shows_the_lines_that_count(
    tool: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tool.ROOT / "assets" / "dense.py"
    file.write_text(DENSE)
    assert tool.main(["--list", "tuples"]) == 0
    line = "found, odd = [each for each in open(at)], []"
    assert capsys.readouterr().out == f"{file}:3: {line}\n"
    assert tool.main(["--list", "adverbs"]) == 0
    assert capsys.readouterr().out == f"{file}:2: at of rows\n"
