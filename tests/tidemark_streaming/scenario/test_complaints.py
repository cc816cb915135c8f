"""A malformed scenario is refused with one error message that names the file, the line and the
valid values."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tidemark_streaming.scenario.read.parse import load_scenario
from tidemark_streaming.scenario.read.reader import ScenarioError

LAWFUL = """\
name: base
source:
  event_time: ts
  columns: {ts: timestamp, name: string, v: "decimal(4,2)", n: int}
  watermark: {manual: {}}
arrivals:
- rows:
  - {ts: 2020-10-10 00:00:01, name: a, v: 1.11, n: 1}
- clock: 1 minute
- watermark: 2020-10-10 00:00:10
open: false
transform:
  window: {tumbling: {size: 5 seconds}}
  keys: [name]
  allowed_lateness: 0 seconds
  trigger: {early: {count: 2}}
  accumulation: discarding
  aggregates: {k: count, total: {sum: v}}
expect:
  windows: [{window_start: "2020-10-10 00:00:00", k: 1}]
clock_start: 2020-10-10
"""

CASES = [
    pytest.param(case, id=f"{case['line']}: {case['by']}")
    for part in yaml.safe_load(Path(__file__).with_name("complaints.yaml").read_text()).values()
    for case in part
]


def complaint(tmp_path: Path, text: str | bytes) -> str:
    """Return the error message for a file without its path."""
    path = tmp_path / "file.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    assert caught.value.exit_code == 2
    sentence = str(caught.value)
    assert sentence.startswith(f"{path}:")
    return sentence.removeprefix(f"{path}:")


def test_the_base_scenario_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(LAWFUL)
    assert load_scenario(path).name == "base"


@pytest.mark.parametrize("case", CASES)
def test_invalid_scenarios_are_refused_with_their_line(
    tmp_path: Path, case: dict[str, Any]
) -> None:
    assert case["replace"] in LAWFUL
    spoilt = LAWFUL.replace(case["replace"], case["by"], 1)
    assert complaint(tmp_path, spoilt) == f"{case['line']}: {case['says']}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "1: the file is empty, but a scenario must be a mapping."),
        (b"# nothing\n", "1: the file is empty, but a scenario must be a mapping."),
        (b"name: a\nsource: \xff\n", "2: the file is not valid UTF-8 text."),
        (b"- name: a\n", "1: a scenario must be a mapping (got a list)."),
        (b"[" * 3000, "1: this is not a scenario: it has too many nested levels."),
    ],
    ids=["empty", "a comment", "bytes", "a list", "deep"],
)
def test_a_file_that_is_not_a_scenario_is_refused(tmp_path: Path, text: bytes, said: str) -> None:
    assert complaint(tmp_path, text) == said


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(tmp_path / "none.yaml")
    said = f"{tmp_path / 'none.yaml'}: the file can't be read: no such file or directory."
    assert str(caught.value) == said
