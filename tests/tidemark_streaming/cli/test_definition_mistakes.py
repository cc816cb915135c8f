"""Errors in definitions are reported on one line with the file and the line, without a
traceback."""

from pathlib import Path

import pytest

from helpers.processes.commands import call

pytestmark = pytest.mark.usefixtures("nowhere")
GOOD = """\
from tidemark import agg
from tidemark import windowed_asset
from tidemark import Tumbling

from helpers.data.support import READINGS


@windowed_asset(
    source=READINGS,
    window=Tumbling("1 hour"),
    aggregates={"n": agg.count()},
)
def hourly(rows):
    return rows
"""


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        (
            'Tumbling("1 hour")',
            "Tumbling(3600)",
            "transforms.py, line 10: Tumbling: size must be a string or a timedelta (got 3600).",
        ),
        (
            'Tumbling("1 hour")',
            'Tumbling("1 month")',
            "transforms.py, line 10: '1 month' is not a duration: write a number and one of "
            "microsecond, millisecond, second, minute, hour, day, week, as in '90 seconds' or "
            "'1h'. Months and years vary in length: use Calendar('month') or Calendar('year') for "
            "calendar windows.",
        ),
        (
            "window=",
            "windows=",
            "transforms.py, line 8: windowed_asset has no parameter 'windows'. Its parameters are "
            "source, window, aggregates, keys, allowed_lateness, trigger, accumulation, "
            "deduplicate, expectations, sink. Did you mean 'window'?",
        ),
        (
            "source=READINGS,",
            'source=READINGS,\n    keys="shop",',
            "transforms.py, line 8: windowed_asset: keys must be a list of strings (got 'shop'). "
            "Write ['shop'].",
        ),
        (
            "return rows",
            "return rows(",
            "transforms.py, line 14: SyntaxError: '(' was never closed: return rows(.",
        ),
        (
            "agg.count()",
            "agg.cuont()",
            "transforms.py, line 11: AttributeError: module 'tidemark.agg' has no attribute "
            "'cuont'.",
        ),
        (
            "import READINGS",
            "import NOTHING",
            "transforms.py, line 5: ImportError: cannot import name 'NOTHING' from "
            "'helpers.data.support'",
        ),
        (
            "agg.count()",
            "__import__('pyspark.sql.functions').sql.functions.sum('value')",
            "transforms.py, line 11: pyspark.errors.exceptions.base.PySparkRuntimeError: "
            "[SESSION_OR_CONTEXT_NOT_EXISTS] SparkContext or SparkSession should be created first. "
            "Definitions are loaded without an engine: use a function of tidemark.agg for an "
            "aggregate, and create columns and UDFs of Spark within the function of an asset.",
        ),
        (
            "import READINGS",
            "import READINGS\nfrom dataclasses import replace\n"
            "from tidemark import MonotonicTimestamps\n"
            "READINGS = replace(READINGS, watermark=MonotonicTimestamps)",
            "transforms.py, line 8: Source: watermark must be a Watermark (got the class "
            "MonotonicTimestamps itself). Write MonotonicTimestamps(…).",
        ),
        (
            "source=READINGS,",
            'source=READINGS,\n    keys=["sensor", "sensor"],',
            "transforms.py, line 8: Asset 'hourly': the key 'sensor' is given twice: remove one.",
        ),
        ("READINGS\n\n", "READINGS\n\n1 / 0\n", "transforms.py, line 7: ZeroDivisionError: "),
        (
            "def hourly(rows)",
            "def hourly()",
            "transforms.py, line 8: Asset 'hourly': its function must have a parameter for "
            "the rows, as in `def prepare(rows)` (got the function hourly).",
        ),
    ],
)
def test_a_definition_error_is_one_line_with_its_place(
    right: str, wrong: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = tmp_path / f"odd_{tmp_path.name}"
    domain.mkdir()
    (domain / "__init__.py").touch()
    assert right in GOOD
    (domain / "transforms.py").write_text(GOOD.replace(right, wrong, 1))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TIDEMARK_DOMAINS", domain.name)
    monkeypatch.chdir(domain)
    # A session of an earlier test would let functions of Spark return columns.
    for mode in ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE"):
        monkeypatch.delenv(mode, raising=False)
    result = call("run", "hourly")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {said.rstrip('.')}"), result.stderr
    assert result.stderr.count("\n") == 1
