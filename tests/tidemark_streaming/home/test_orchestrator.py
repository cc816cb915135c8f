"""Dagster accepts the instance configuration that `tidemark up` writes."""

from pathlib import Path

import dagster as dg

from tidemark_streaming.home import orchestrator


def test_dagster_loads_the_generated_instance(tmp_path: Path) -> None:
    folder = Path(orchestrator.prepare_folder(tmp_path)["DAGSTER_HOME"])
    with dg.DagsterInstance.from_config(str(folder)) as instance:
        concurrency = instance.get_concurrency_config()
        assert concurrency.pool_config.default_pool_limit == 1
        assert instance.run_monitoring_enabled
        assert not instance.telemetry_enabled


def test_an_edited_configuration_is_kept(tmp_path: Path) -> None:
    folder = Path(orchestrator.prepare_folder(tmp_path)["DAGSTER_HOME"])
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    orchestrator.prepare_folder(tmp_path)
    assert (folder / "dagster.yaml").read_text() == "telemetry: {enabled: false}\n"
