"""Jobs of assets: one that fails does not keep the others from their work."""

from types import SimpleNamespace

import dagster as dg

from helpers.data.support import PER_MINUTE, renamed
from tidemark.base.errors import DataError
from tidemark.define.definition import Definition
from tidemark_assets.base.names import PLAIN
from tidemark_assets.base.steps import OfAssets
from tidemark_assets.jobs.step_job import Step, for_each_asset, step_job

ASSETS = {name: renamed(PER_MINUTE, name) for name in ("first", "second")}
WITHOUT_ENGINE = dg.ResourceDefinition.hardcoded_resource(SimpleNamespace(warehouse=None))


def test_the_other_assets_are_done_and_the_error_names_its_asset() -> None:
    done = list[str]()

    def work(_: Step[OfAssets], transform: Definition) -> None:
        if transform.name == "first":
            raise DataError("It was never ingested.")
        done.append(transform.name)

    job = step_job(PLAIN, "job", "step", "", OfAssets, for_each_asset(ASSETS, work, lambda _: {}))
    result = (
        dg.Definitions(jobs=[job], resources={"tidemark": WITHOUT_ENGINE})
        .resolve_job_def("job")
        .execute_in_process(
            run_config={"ops": {"step": {"config": {"assets": [*ASSETS]}}}}, raise_on_error=False
        )
    )
    assert done == ["second"]
    (failed,) = (e for e in result.all_node_events if e.is_step_failure)
    assert "Failure: first: It was never ingested.\n" in str(failed.step_failure_data.error)
