"""Checks that sensors and jobs report, and that users can also run on an asset's page."""

from collections.abc import Callable

import dagster as dg

from tidemark_assets.base.names import Names
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.base.steps import failing_with_message


def page_check(
    key: dg.AssetKey,
    names: Names,
    name: str,
    description: str,
    evaluate: Callable[[TidemarkResource], dg.AssetCheckEvaluation],
    pool: str | None = None,
) -> dg.AssetChecksDefinition:
    """Return a check that an asset's page can run.

    Args:
        evaluate: returns the result of the check, in the form that sensors and jobs report.
        pool: the pool that limits how many checks run at once; no limit by default.
    """

    @dg.asset_check(
        asset=key,
        required_resource_keys=names.needs,
        name=name,
        description=description,
        pool=pool,
    )
    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        with failing_with_message():
            return as_result(evaluate(names.tidemark(context)))

    return check


def as_result(evaluation: dg.AssetCheckEvaluation) -> dg.AssetCheckResult:
    """Return an evaluation in the form that a check or a step yields."""
    return dg.AssetCheckResult(
        asset_key=evaluation.asset_key,
        check_name=evaluation.check_name,
        passed=evaluation.passed,
        metadata=evaluation.metadata,
        severity=evaluation.severity,
        description=evaluation.description,
    )
