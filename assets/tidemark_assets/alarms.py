"""Find checks that failed with an error, for a user's own alert sensor.

The user decides how to send an alert, such as by mail, pager or web hook. docs/dagster.md has a
recipe.
"""

from collections.abc import Iterable

import dagster as dg

__all__ = ["failing_checks"]


def failing_checks(
    instance: dg.DagsterInstance, checks: Iterable[dg.AssetCheckKey]
) -> dict[str, str]:
    """Return the checks (`asset: check`) whose last evaluation failed with an error, and why.

    Checks that failed with a warning are left out. For example, a stream that waits for its next
    start is a warning, because it may recover. A stream that was given up is an error.

    Args:
        instance: the Dagster instance, as in a sensor's context.
        checks: the checks to examine, such as
            `context.repository_def.asset_graph.asset_check_keys`.
    """
    descriptions = dict[str, str]()
    for key in sorted(checks, key=lambda key: key.to_user_string()):
        record = instance.get_latest_asset_check_evaluation_record(key)
        event = None if record is None else record.event
        evaluation = None if event is None else event.asset_check_evaluation
        if (
            evaluation is not None
            and not evaluation.passed
            and evaluation.severity is dg.AssetCheckSeverity.ERROR
        ):
            name = f"{evaluation.asset_key.to_user_string()}: {evaluation.check_name}"
            descriptions[name] = evaluation.description or "The check failed."
    return descriptions
