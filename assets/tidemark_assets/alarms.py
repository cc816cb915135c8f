"""What is worth an alarm: checks that failed with an error, to be told by a sensor of one's own.

How somebody is told, by mail, a pager or a web hook, is for who is told: docs/dagster.md has
a recipe.
"""

from collections.abc import Iterable

import dagster as dg

__all__ = ["failing"]


def failing(instance: dg.DagsterInstance, checks: Iterable[dg.AssetCheckKey]) -> dict[str, str]:
    """Those checks whose last evaluation failed with an error, `asset: check`, and what they say.

    A check that only warns is left out: a stream that waits for its next start may come back by
    itself, one that was given up does not.

    Args:
        instance: Dagster's, as a sensor's context has it.
        checks: those to look at, such as `context.repository_def.asset_graph.asset_check_keys`.
    """
    found = dict[str, str]()
    for key in sorted(checks, key=lambda key: key.to_user_string()):
        record = instance.get_latest_asset_check_evaluation_record(key)
        event = None if record is None else record.event
        told = None if event is None else event.asset_check_evaluation
        if told is not None and not told.passed and told.severity is dg.AssetCheckSeverity.ERROR:
            name = f"{told.asset_key.to_user_string()}: {told.check_name}"
            found[name] = told.description or "It failed."
    return found
