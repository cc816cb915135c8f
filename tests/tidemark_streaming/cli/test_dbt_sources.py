"""`tidemark dbt-sources`: what a dbt project reads is told by the definitions."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import yaml

from commands import call
from support import PER_MINUTE
from tidemark import aggregate as agg
from tidemark.base.errors import DefinitionError
from tidemark.base.settings import RECORDED, bundled_dbt_project
from tidemark.define.transform import WindowedTransform
from tidemark_streaming.dbt_sources import PLACE, chosen, written


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a copy of the dbt project that comes along."""
    bundled = bundled_dbt_project()
    assert bundled is not None
    shutil.copytree(bundled, tmp_path / "dbt_project")
    monkeypatch.setenv("TIDEMARK_MARTS", str(tmp_path / "dbt_project"))
    monkeypatch.setenv("TIDEMARK_DOMAINS", ",".join(RECORDED))
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    return tmp_path / "dbt_project" / PLACE


@pytest.mark.usefixtures("project")
def test_the_sources_of_the_marts_are_those_of_the_definitions() -> None:
    result = call("dbt-sources", "--check")
    assert result.exit_code == 0, result.stdout


# Runs commands in a new project, one process each.
@pytest.mark.slow
def test_a_new_project_has_the_sources_of_its_definitions(tmp_path: Path) -> None:
    tidemark = Path(sys.executable).with_name("tidemark")
    for folder, words in ((tmp_path, ["new", "shop"]), (tmp_path / "shop", ["dbt-sources"])):
        check = ["--check"] if words == ["dbt-sources"] else ["--defaults"]
        done = subprocess.run(
            [tidemark, *words, *check], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_an_asset_is_added_by_its_name_and_one_that_is_no_more_leaves(project: Path) -> None:
    project.write_text(project.read_text().replace("name: aircraft_days\n", "name: no_more\n"))
    before = project.read_text()
    assert call("dbt-sources", "--check").exit_code == 1
    assert project.read_text() == before
    said = call("dbt-sources", "departures_daily").stdout
    assert "'no_more' is not defined any more." in said
    names = chosen(project.read_text())
    assert names == [
        *("departures_hourly", "departures_by_carrier", "temperature_hourly", "departures_daily")
    ]
    assert call("dbt-sources", "--check").exit_code == 0


def test_without_a_file_all_assets_are_in_it(project: Path) -> None:
    project.unlink()
    assert call("dbt-sources").exit_code == 0
    assert {"carrier_months", "departures_daily"} <= set(chosen(project.read_text()))


def test_what_a_person_wrote_beside_the_definitions_stays() -> None:
    theirs = {
        "sources": [
            {
                "name": "windows",
                "config": {"freshness": {"warn_after": {"count": 1, "period": "hour"}}},
                "tables": [
                    {
                        "name": "per_minute",
                        "description": "Of before.",
                        "columns": [
                            {"name": "total", "data_type": "decimal(20,2)", "description": "Sales"},
                            {"name": "n", "data_type": "text", "data_tests": ["not_null"]},
                            {"name": "gone"},
                        ],
                    }
                ],
            },
            {"name": "crm", "tables": [{"name": "customers"}]},
        ]
    }
    made = yaml.safe_load(written([PER_MINUTE], yaml.safe_dump(theirs)))
    windows, kept, crm = made["sources"]
    (table,) = windows["tables"]
    columns = {column["name"]: column for column in table["columns"]}
    assert windows["config"] == {"freshness": {"warn_after": {"count": 1, "period": "hour"}}}
    assert table["description"] == "Readings by sensor and minute."
    assert columns["total"] == {
        "name": "total",
        "data_type": "decimal(20,2)",
        "description": "Sales",
    }
    assert columns["n"]["data_type"] == "bigint"
    assert columns["n"]["data_tests"] == ["not_null"]
    assert "gone" not in columns
    assert list(columns)[:3] == ["window_start", "window_end", "sensor"]
    assert [t["name"] for t in kept["tables"]] == [
        f"per_minute_{kind}" for kind in ("late", "late_loss", "quarantine")
    ]
    assert crm == {"name": "crm", "tables": [{"name": "customers"}]}


def described(of: WindowedTransform, text: str) -> dict[str, str]:
    """What a file says of the columns of `per_minute`."""
    windows, _ = yaml.safe_load(written([of], text))["sources"]
    [table] = windows["tables"]
    return {column["name"]: column["description"] for column in table["columns"]}


def test_an_aggregate_or_a_key_that_has_changed_is_told_anew() -> None:
    """Also in a file that an earlier version wrote, which is the same."""
    spread = partial(agg.python, partial=max, merge=max, finish=max)
    typed = partial(spread, partial_type="double", result_type="double")
    before = replace(
        PER_MINUTE,
        aggregates={
            **PER_MINUTE.aggregates,
            "often": agg.top_k("coalesce(sensor, ')')", 3),
            "wide": typed("spread of values", "value"),
        },
    )
    after = replace(
        before,
        keys=("price",),
        aggregates={
            **before.aggregates,
            "high": agg.count(where="value > 0.75"),
            "total": agg.mean("price"),
            "often": agg.top_k("price", 3),
            "wide": typed("spread of values", "abs(value)"),
            "sensor": agg.max("sensor"),
        },
    )
    found = described(after, written([before]))
    assert found == described(after, "")
    assert found["high"] == "count(*) where value > 0.75"
    assert found["sensor"] == "max(sensor)"


@pytest.mark.parametrize(
    "theirs",
    [
        *("sum(price), in euros", "Sum (of prices)", "net(price)", "count(of them", "sum(it's)"),
        *("sum(price)s", "mean(price) per sensor", "The maximum", "max(a) max(b)"),
    ],
)
def test_words_of_a_person_stay(theirs: str) -> None:
    text = written([PER_MINUTE]).replace("sum(price)", json.dumps(theirs))
    after = replace(PER_MINUTE, aggregates={**PER_MINUTE.aggregates, "total": agg.mean("price")})
    assert described(after, text)["total"] == theirs


@pytest.mark.parametrize(
    ("text", "sentence"), [("a: [", "is not valid YAML: "), ("sources: 3", "has no list 'sources'")]
)
def test_a_file_of_something_else_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(DefinitionError, match=sentence):
        written([PER_MINUTE], text)


@pytest.mark.usefixtures("project")
def test_an_asset_that_is_none_is_one_sentence() -> None:
    result = call("dbt-sources", "departures_hourli")
    assert result.exit_code == 2
    assert "Did you mean 'departures_hourly'?" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("sources: [a]\n", "'sources' must be a list of mappings, each with a name"),
        ("sources:\n- name: windows\n  tables: {a: 1}\n", "'tables' of 'windows' must be a list"),
        (
            "sources:\n- name: windows\n  tables:\n  - name: per_minute\n    columns: [n]\n",
            "'columns' of 'per_minute' must be a list",
        ),
    ],
)
def test_what_is_no_list_of_named_mappings_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(DefinitionError, match=sentence):
        written([PER_MINUTE], text)


@pytest.mark.parametrize(
    "text",
    [
        "sources:\n",
        "sources:\n- name: windows\n  tables:\n",
        "sources:\n- name: windows\n  tables:\n  - name: per_minute\n    columns:\n    config:\n",
    ],
)
def test_what_is_left_empty_is_written(text: str) -> None:
    assert chosen(written([PER_MINUTE], text)) == ["per_minute"]
