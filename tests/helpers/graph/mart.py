"""Marts of a case: a dbt project over published windows, and the rows that its models must have.

A case lasts a minute, so each of its days lasts a few seconds: the models and the change data feed
compute the day from the seconds since `EPOCH`.
"""

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import psutil
import yaml

from helpers.graph.case import EPOCH, EPOCH_MICROS, SECOND
from helpers.model.oracle import micros
from tidemark.base.settings import Settings
from tidemark.define.definition import Definition
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.base.background_poll import call_when
from tidemark_streaming.dbt import dbt_process
from tidemark_streaming.dbt.marts import (
    Marts,
    describe_failure,
    describe_missing_table,
    raise_if_any,
)

Row = dict[str, Any]
MartRows = dict[date, Row]
"""The rows of a mart, by day."""

_WATCH_SECONDS = 0.01
_DAY_SECONDS = 8
_STRETCH = 86_400 // _DAY_SECONDS
_LATEST = 1000
"""The second after `EPOCH` to which later windows count. A day far in the future does not exist."""
_BEGAN = int(EPOCH.timestamp())
_TIME = f"least(unix_seconds(window_start) - {_BEGAN}, {_LATEST}) * {_STRETCH} + {_BEGAN}"
_START = f"timestamp_seconds({_TIME})"

_MODEL = f"""\
{{% set start = "{_START}" %}}
select
    {{{{ day(start) }}}} as day,
    count(*) as windows,
    sum(n) as n,
    sum(total) as total,
    bool_and(final) as final
from {{{{ source('windows', 'TABLE') }}}}
where {{{{ in_changed_days(start) }}}}
group by day
"""

_PROJECT: Mapping[str, Any] = {
    "name": "random_graph",
    "version": "0.1.0",
    "profile": "tidemark",
    "macro-paths": ["{{ env_var('TIDEMARK_DBT') }}/macros"],
    "vars": {"time_zone": "UTC"},
    "models": {
        "random_graph": {
            "+file_format": "delta",
            "+location_root": "{{ env_var('TIDEMARK_WAREHOUSE') }}/{{ target.schema }}",
            "+materialized": "incremental",
            "+incremental_strategy": "changed_days",
            "+on_schema_change": "fail",
            "+pre-hook": "{{ find_changes() }}",
            "+post-hook": "{{ remember_changes() }}",
        }
    },
}


class MartProject:
    """The dbt project of a case.

    Args:
        engine: the settings of the engine.
        store: the tables of the case.
        marts: the published asset of each mart, by the mart's name.
    """

    def __init__(self, engine: Settings, store: Warehouse, marts: Mapping[str, Definition]) -> None:
        folder = Path(store.location.removeprefix("file://"))
        home = folder / "home"
        home.mkdir(exist_ok=True)
        self._assets = marts
        self._marts = Marts(
            engine.model_copy(
                update={
                    "home": home,
                    "warehouse": store.location,
                    "database": store.database,
                    "marts": _write(folder / "dbt_project", marts),
                }
            )
        )

    def build(
        self,
        address: str,
        store: Warehouse,
        name: str,
        *,
        full_refresh: bool = False,
        when_written: Callable[[], None] | None = None,
    ) -> None:
        """Do what `tidemark dbt build NAME` does.

        Args:
            address: the engine's address.
            when_written: a function that is called as soon as dbt has written the mart.
        """
        raise_if_any(
            describe_missing_table(self._marts.find_missing_tables(store.has_table), [name])
        )
        log = Path(mart_tables(store).path_of(name).removeprefix("file://")) / "_delta_log"
        with nullcontext() if when_written is None else _call_when_written(log, when_written):
            # The other operations of a case do without the catalog; dbt finds tables there.
            registered = Warehouse(store.spark, store.location, store.database)
            found = self._marts.build_marts(registered, address, [name], full_refresh=full_refresh)
        raise_if_any(describe_failure(found))


def _write(folder: Path, marts: Mapping[str, Definition]) -> Path:
    """Write a dbt project with a model for each mart. Return its folder."""
    models = folder / "models"
    models.mkdir(parents=True, exist_ok=True)
    tables = [
        {"name": str(name)} for name in dict.fromkeys(a.published_table for a in marts.values())
    ]
    source = {
        "name": "windows",
        "schema": "{{ env_var('TIDEMARK_DATABASE') }}",
        "config": {"event_time": _START},
        "tables": tables,
    }
    sources = {"version": 2, "sources": [source]}
    (folder / "dbt_project.yml").write_text(yaml.safe_dump(_PROJECT))
    (models / "sources.yml").write_text(yaml.safe_dump(sources))
    for name, asset in marts.items():
        (models / f"{name}.sql").write_text(_MODEL.replace("TABLE", asset.published_table))
    return folder


def mart_tables(store: Warehouse) -> Warehouse:
    return store.open_marts(registered=False)


def mart_rows(store: Warehouse, name: str) -> MartRows:
    """Return the rows of a mart by day."""
    rows = mart_tables(store).load_rows(name).to_pylist()
    return {row["day"]: row for row in rows}


def expected_rows(published: Iterable[Row]) -> MartRows:
    """Return the rows that a mart must have, by day."""
    by_day = defaultdict[date, list[Row]](list)
    for row in published:
        by_day[_day(micros(row["window_start"]))].append(row)
    return {day: _mart_row(day, rows) for day, rows in by_day.items()}


def _day(start: int) -> date:
    seconds = min((start - EPOCH_MICROS) // SECOND, _LATEST) * _STRETCH + _BEGAN
    return datetime.fromtimestamp(seconds, UTC).date()


def _mart_row(day: date, rows: list[Row]) -> Row:
    totals = [row["total"] for row in rows if row["total"] is not None]
    return {
        "day": day,
        "windows": len(rows),
        "n": sum(row["n"] for row in rows),
        "total": sum(totals) if totals else None,
        "final": all(row["final"] for row in rows),
    }


def forget(store: Warehouse) -> None:
    """Remove the databases of a case from the catalog."""
    for database in (store.database, mart_tables(store).database):
        store.spark.sql(f"DROP DATABASE IF EXISTS `{database}` CASCADE")


def kill_dbt() -> None:
    for process in psutil.Process().children(recursive=True):
        if dbt_process.MODULE in process.cmdline():
            process.kill()


def _call_when_written(
    transaction_log: Path, when_written: Callable[[], None]
) -> AbstractContextManager[None]:
    """Within the context, call a function as soon as a table has a new version."""
    before = _entries(transaction_log)
    return call_when(
        lambda: _entries(transaction_log) != before,
        when_written,
        seconds=_WATCH_SECONDS,
        thread="builds of marts",
    )


def _entries(transaction_log: Path) -> set[str]:
    return {path.name for path in transaction_log.glob("*.json")}


def copy_marts(store: Warehouse, to: Path) -> None:
    """Copy the tables of the marts into a folder, if there are any."""
    folder = _folder(store)
    if folder.exists():
        shutil.copytree(folder, to)


def restore_marts(store: Warehouse, copied: Path) -> None:
    """Replace the tables of the marts by their copies."""
    folder = _folder(store)
    shutil.rmtree(folder, ignore_errors=True)
    if copied.exists():
        shutil.copytree(copied, folder)


def _folder(store: Warehouse) -> Path:
    marts = mart_tables(store)
    return Path(f"{marts.location}/{marts.database}".removeprefix("file://"))
