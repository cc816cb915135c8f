"""The declared faults can be planted, and a fault that no test sees is told."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from mutants.__main__ import run
from mutants.declared import ROOT, Mutant, StaleError, declared, table

MUTANTS = declared()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.of}: {m.rule}")
def test_a_fault_can_be_planted_where_its_text_is(mutant: Mutant) -> None:
    planted = mutant.planted(ROOT)
    if mutant.file.endswith(".py"):
        compile(planted, mutant.file, "exec")
    assert (ROOT / mutant.tests).is_file()


def test_a_fault_whose_text_is_gone_is_refused() -> None:
    mutant = next(m for m in MUTANTS if m.rule == "a bound is taken off the newest event time")
    for old, times in (("no such text", 0), ("self", 16)):
        with pytest.raises(StaleError, match=r"its old text is \d+ times in platform/") as caught:
            replace(mutant, old=old).planted(ROOT)
        assert times or " 0 times" in str(caught.value)


def test_the_table_of_the_faults_is_that_of_the_document() -> None:
    document = (ROOT / "docs/testing.md").read_text()
    assert table(MUTANTS) in document, f"docs/testing.md should have:\n{table(MUTANTS)}"


def test_a_fault_that_no_test_sees_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.py").write_text("one, two = 1, 2\n")
    (tmp_path / "test_one.py").write_text(
        "import one\n\ndef test_one():\n    assert one.one == 1\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    seen = Mutant(
        "numbers", "one is one", "it is three", "one.py", "= 1,", "= 3,", "test_one.py", ""
    )
    unseen = replace(seen, rule="two is two", old="1, 2", new="1, 3")
    broken = replace(seen, old="one,", new="one one,")
    env = os.environ | {"PYTHONPATH": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    assert run([seen], tmp_path, env) == 0
    assert run([seen, unseen], tmp_path, env) == 1
    assert "2 faults: 1 seen, 1 not seen, 0 not tried: exit code 1." in capsys.readouterr().out
    assert run([seen, broken], tmp_path, env) == 2
    out, err = capsys.readouterr()
    assert "the tests do not run" in err
    assert "2 faults: 1 seen, 0 not seen, 1 not tried: exit code 2." in out
    assert (tmp_path / "one.py").read_text() == "one, two = 1, 2\n"
