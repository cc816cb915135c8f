"""Tests of the public names: `import tidemark as tm`."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import tidemark as tm


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_an_import_of_the_package_loads_no_definitions() -> None:
    code = "import sys, tidemark; from tidemark import base; print('tidemark.api' in sys.modules)"
    assert run_python(code).stdout == "False\n"


def test_all_public_names_can_be_imported() -> None:
    code = "from tidemark import *; print(Tumbling('1 hour'), agg.count(), expect.matches_log())"
    done = run_python(code)
    assert done.stderr == ""
    assert "1 hour" in done.stdout


def test_an_unknown_name_is_an_error() -> None:
    assert (
        "cannot import name 'Tumblng' from 'tidemark'"
        in run_python("from tidemark import Tumblng").stderr
    )
    with pytest.raises(AttributeError, match="module 'tidemark' has no attribute 'tumbling'"):
        getattr(tm, "tumbling")  # noqa: B009 (a type checker would refuse the attribute)


def test_read_returns_a_table_of_the_project(tmp_path: Path) -> None:
    settings = tm.Settings(home=tmp_path, database="shop")
    path = f"{settings.warehouse}/shop/orders_hourly"
    write_deltalake(path, pa.table({"orders": [1]}))
    write_deltalake(path, pa.table({"orders": [2]}), mode="append")
    table = tm.read("orders_hourly", settings=settings)
    assert sorted(table.to_pyarrow_table()["orders"].to_pylist()) == [1, 2]
    first = tm.read("orders_hourly", version=0, settings=settings)
    assert first.to_pyarrow_table()["orders"].to_pylist() == [1]


def test_read_says_that_a_table_does_not_exist(tmp_path: Path) -> None:
    settings = tm.Settings(home=tmp_path, database="shop")
    with pytest.raises(tm.DataError, match=r"There is no table 'orders_hourly' in '.*/shop': "):
        tm.read("orders_hourly", settings=settings)
