"""What is worth an alarm: checks that failed with an error, to be told by a sensor of one's own.

How somebody is told, by mail, a pager or a web hook, is for who is told: docs/orchestration.md has
a recipe.
"""

from collections.abc import Iterable

import dagster as dg


def failing(instance: dg.DagsterInstance, checks: Iterable[dg.AssetCheckKey]) -> dict[str, str]:
    """Those checks whose last evaluation failed with an error, `asset: check`, and what they say.

    A check that only warns is left out: a stream that waits for its next start may come back by
    itself, one that was given up does not.
    """
    keys = sorted(checks, key=lambda key: key.to_user_string())
    found = dict[str, str]()
    for record in instance.event_log_storage.get_latest_asset_check_execution_by_key(keys).values():
        told = None if record.event is None else record.event.asset_check_evaluation
        if told is not None and not told.passed and told.severity is dg.AssetCheckSeverity.ERROR:
            name = f"{told.asset_key.to_user_string()}: {told.check_name}"
            found[name] = told.description or "It failed."
    return found
