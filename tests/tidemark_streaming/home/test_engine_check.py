"""Tests of the differences that the check of an engine finds."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidemark import engine as spark_engine
from tidemark.base.settings import Settings
from tidemark.engine import conf
from tidemark.engine.conf import SETTINGS
from tidemark.engine.ports import free_port
from tidemark.engine.python_probe import describe_python
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.home import engine_check
from tidemark_streaming.home.engine_check import check_engine


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Warehouse]:
    """Yield the warehouse of an engine with Spark's defaults."""
    settings = Settings(home=tmp_path, engine_port=free_port(), engine_memory="1g")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conf, "SETTINGS", ())
        spark_engine.ensure_engine(settings)
    spark = spark_engine.connect_session(settings)
    try:
        yield Warehouse(spark, settings.warehouse, settings.database)
    finally:
        spark.stop()
        spark_engine.stop_engine(settings)


def test_the_engine_that_tidemark_starts_fits(warehouse: Warehouse) -> None:
    assert [*check_engine(warehouse, ["gated"])] == []
    assert not [*Path(warehouse.path_of("")).glob("_engine-check*")]


def test_a_domain_that_the_engine_lacks_is_found_on_workers_and_server(
    warehouse: Warehouse,
) -> None:
    found = [*check_engine(warehouse, ["no_such_domain"])]
    assert [each.part for each in found] == ["workers", "server"]
    assert all("can't import no_such_domain: ModuleNotFoundError" in f.problem for f in found)


# Starts an engine.
@pytest.mark.slow
def test_each_setting_that_differs_is_found_with_its_reason(plain: Warehouse) -> None:
    found = [*check_engine(plain, ["gated"])]
    of_settings = {f.problem.partition(" ")[0]: f for f in found if f.part == "settings"}
    # Sessions of Tidemark exclude the unsafe rule in any engine, Spark's default is ANSI mode, and
    # the variable of the workers is that of the server's process.
    set_anyway = {
        "spark.sql.adaptive.optimizer.excludedRules",
        "spark.sql.ansi.enabled",
        "spark.executorEnv.PYTHONHASHSEED",
    }
    expected = {setting.name for setting in SETTINGS} - set_anyway
    assert expected - set(of_settings) == {"spark.sql.session.timeZone"}
    for setting in SETTINGS:
        if setting.name in of_settings:
            assert setting.reason in of_settings[setting.name].problem
            assert of_settings[setting.name].required == setting.required
    (store,) = (f.problem for f in found if f.part == "store")
    assert "DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG" in store


def test_pythons_that_differ() -> None:
    own: dict[str, Any] = describe_python(["pyarrow", "numpy"], [])
    theirs = own | {
        "host": "worker-1",
        "executable": "/usr/bin/python3",
        "python": "3.9",
        "hash_seed": None,
        "packages": {"pyarrow": None, "numpy": "1.2.3"},
        "failures": {"shop": "ImportError: no shop"},
    }
    found = [each.problem for each in engine_check._compare_pythons("workers", theirs, own)]
    assert all(problem.startswith("/usr/bin/python3 on worker-1 ") for problem in found)
    for problem, part in zip(
        found,
        ["Python 3.9", "PYTHONHASHSEED=0", "no package pyarrow", "numpy 1.2.3", "ImportError"],
        strict=True,
    ):
        assert part in problem
    same = own | {"hash_seed": "0"}
    assert [*engine_check._compare_pythons("workers", same, own)] == []
