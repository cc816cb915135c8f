"""One job for all operations on a domain's tables: its config chooses the operation.

In the launchpad, `operation` has one entry for each operation, with the config of this operation
only. Dagster refuses an unknown operation, and config of another one. A run has the operation as
the tag `tidemark/operation`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any, Generic, Literal, TypeVar, cast

import dagster as dg
from pydantic import Field, create_model

from tidemark_assets.base.names import Names
from tidemark_assets.jobs.step_job import Step, step_job
from tidemark_streaming.home.orchestrator import ENGINE_POOL

_C = TypeVar("_C", bound=dg.Config)

TAG = "tidemark/operation"
"""The tag of a run that has the name of its operation."""


@dataclass(frozen=True)
class Operation(Generic[_C]):
    """One of the operations of a job, which a user chooses in the job's config.

    Args:
        name: the name in the config.
        description: the text that the launchpad shows.
        config_type: the config of the operation.
        work: does the operation.
    """

    name: str
    description: str
    config_type: type[_C]
    work: Callable[[Step[_C]], None]


def operations_job(
    names: Names,
    name: str,
    step: str,
    description: str,
    operations: Sequence[Operation[Any]],
    pool: str | None = ENGINE_POOL,
) -> dg.JobDefinition:
    """Return a job whose config chooses one of some operations.

    Args:
        operations: at least two. The launchpad starts with the first one, whose config has
            defaults.
        pool: the pool that limits how many steps run at once; None for no limit.
    """
    by_name = {operation.name: operation for operation in operations}
    options = [_option(operation) for operation in operations]
    description_of_field = f"The operation (default: {operations[0].name})."
    field = Field(default=options[0](), discriminator="operation", description=description_of_field)
    # The union of the options. Dagster makes an exclusive choice of it.
    choice: Any = reduce(or_, cast(Sequence[Any], options))
    config_type = create_model("Operations", __base__=dg.Config, operation=(choice, field))

    def work(running: Step[Any]) -> None:
        config = running.config.operation
        context = running.context
        context.instance.add_run_tags(context.run_id, {TAG: config.operation})
        by_name[config.operation].work(replace(running, config=config))

    return step_job(names, name, step, description, config_type, work, pool)


def chosen(step: str, operation: str, config: object) -> dict[str, Any]:
    """Return the config of a run that does an operation.

    Args:
        step: the name of the job's step, with its prefix.
    """
    return {"ops": {step: {"config": {"operation": {operation: config}}}}}


def _option(operation: Operation[Any]) -> type[dg.Config]:
    """Return the config of an operation, with the field by which Dagster distinguishes it."""
    kind: Any = Literal[operation.name]
    return create_model(
        operation.config_type.__name__,
        __base__=operation.config_type,
        __doc__=operation.description,
        operation=(kind, operation.name),
    )
