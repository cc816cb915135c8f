"""Jobs of one step: how they are set up, and how Dagster shows their failures."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import dagster as dg
from dagster import OpExecutionContext

from tidemark.define.definition import Definition
from tidemark.store.ledger import RunFacts
from tidemark_assets.base.names import Names
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.base.steps import Failures, OfAssets, failing_with_message
from tidemark_assets.reports.run_events import AssetEvent, log_events, log_run
from tidemark_streaming.home.orchestrator import ENGINE_POOL

_C = TypeVar("_C", bound=dg.Config)
_A = TypeVar("_A", bound=OfAssets)
_N = TypeVar("_N")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Step(Generic[_C]):
    """Gives the code of a running step its config, the warehouse, and Dagster's log.

    Args:
        config: the choices of the user who launched the run.
    """

    context: OpExecutionContext
    names: Names
    tidemark: TidemarkResource
    config: _C

    def log(self, *events: AssetEvent) -> None:
        """Log events of assets as events of this Dagster run."""
        log_events(self.context, events)

    def log_run(
        self,
        transform: Definition,
        partitions: dg.TimeWindowPartitionsDefinition,
        facts: RunFacts,
    ) -> None:
        """Log the partitions that a run of this step closed or changed, and the asset's checks."""
        log_run(self.context, self.names, self.tidemark, transform, partitions, facts)


def step_job(
    names: Names,
    name: str,
    step: str,
    description: str,
    config_type: type[_C],
    work: Callable[[Step[_C]], None],
    pool: str | None = ENGINE_POOL,
) -> dg.JobDefinition:
    """Return a job of one step.

    If the step raises a `TidemarkError`, Dagster shows only its message, and retries the step if
    the error may be transient.

    Args:
        pool: the pool that limits how many steps run at once; None for no limit.
    """

    @dg.op(name=names.own(step), pool=pool, required_resource_keys=names.needs)
    def op(context: OpExecutionContext, config: config_type) -> None:  # pyright: ignore[reportInvalidTypeForm]
        with failing_with_message():
            work(Step(context, names, names.tidemark(context), config))

    @dg.job(name=names.own(name), description=description)
    def job() -> None:
        op()

    return job


def for_each_asset(
    nodes: Mapping[str, _N],
    work: Callable[[Step[_A], _N], _T],
    describe: Callable[[Mapping[str, _T]], Mapping[str, Any]],
    choose: Callable[[Step[_A]], Iterable[str]] = lambda step: step.config.assets,
) -> Callable[[Step[_A]], None]:
    """Return the work of a step that processes one asset after the other.

    The step continues if one of them fails.

    Args:
        nodes: the assets, or also derived sources, by name.
        work: processes one asset, and returns the result.
        describe: takes a mapping from the name of each asset that did not fail to the result of
            `work`, and returns the metadata of the step.
        choose: returns the names of the assets to process; those of the config by default.
    """

    def work_on_all(step: Step[_A]) -> None:
        assets = choose(step)
        failures = Failures(step.context)
        results = dict[str, _T]()
        # Connect now: without an engine, the step then fails once, and not once per asset.
        _ = step.tidemark.warehouse
        for asset in assets:
            with failures.collect(asset):
                results[asset] = work(step, nodes[asset])
        step.context.add_output_metadata(describe(results))
        failures.raise_all()

    return work_on_all
