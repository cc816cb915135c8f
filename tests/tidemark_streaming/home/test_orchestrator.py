"""What `tidemark up` writes for Dagster is what Dagster understands."""

from pathlib import Path

import dagster as dg

from tidemark_streaming.home import orchestrator


def test_the_instance_for_local_use_loads(tmp_path: Path) -> None:
    folder = Path(orchestrator.prepare(tmp_path)["DAGSTER_HOME"])
    with dg.DagsterInstance.from_config(str(folder)) as instance:
        concurrency = instance.get_concurrency_config()
        assert concurrency.pool_config.default_pool_limit == 1
        assert instance.run_monitoring_enabled
        assert not instance.telemetry_enabled


def test_a_file_that_was_edited_stays(tmp_path: Path) -> None:
    folder = Path(orchestrator.prepare(tmp_path)["DAGSTER_HOME"])
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    orchestrator.prepare(tmp_path)
    assert (folder / "dagster.yaml").read_text() == "telemetry: {enabled: false}\n"
