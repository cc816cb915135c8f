"""Expectations as asset checks.

Each expectation of a transform is a check of its published asset. After every change that may
affect its outcome, the check is reported with its current state. That state comes from the results
in the table `checks`, from the quarantine and from the published windows: nothing is validated
here.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import dagster as dg

from tidemark.base.instants import format_instant
from tidemark.charts import picture_checks
from tidemark.charts.chart import to_svg
from tidemark.define.definition import Definition
from tidemark.define.expectations.expectation import WARNING, Expectation
from tidemark.quality.results import CheckResult
from tidemark.store.ledger import RunFacts
from tidemark.verify.integrity_checks import FAULT_TEXT, INTEGRITY_CHECKS, describe_remedy
from tidemark_assets.base.cells import as_table, literal
from tidemark_assets.base.names import Names
from tidemark_assets.metadata.pictures import embed_svg
from tidemark_streaming.snapshot import check_results
from tidemark_streaming.snapshot.check_results import results_since
from tidemark_streaming.snapshot.snapshot import Snapshot

_SHOWN = 20
_DRAWN = 60
"""The number of runs in a picture of the history."""
_RECENT = 200
"""The number of runs whose warnings a check considers.

Windows in quarantine fail the check, however old they are.
"""
_SEVERITY = {True: dg.AssetCheckSeverity.WARN, False: dg.AssetCheckSeverity.ERROR}


def check_names(transform: Definition) -> dict[str, str]:
    """Return the name of each expectation's check, by the name of the expectation.

    Names of checks have only letters, digits and `_`. A minus sign is written as a word, because
    `between(x, -5, 5)` and `between(x, 5, 5)` are different checks.
    """
    check_names_: dict[str, str] = {}
    for expectation in transform.all_expectations:
        signed = re.sub(r"-(?=\d)", "minus_", expectation.name)
        plain = re.sub(r"\W+", "_", signed).strip("_")
        numbered = (plain if n == 1 else f"{plain}_{n}" for n in count(1))
        check_names_[expectation.name] = next(n for n in numbered if n not in check_names_.values())
    return check_names_


def specs(names: Names, transform: Definition) -> list[dg.AssetCheckSpec]:
    """Return the checks of a transform's published asset."""
    return [
        dg.AssetCheckSpec(
            name,
            asset=names.key(transform.published_table),
            description=_description(expectation),
            metadata=_expectation_metadata(expectation),
        )
        for expectation, name in zip(
            transform.all_expectations, check_names(transform).values(), strict=True
        )
    ]


def current_results(
    names: Names, snapshot: Snapshot, transform: Definition
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield the current state of each expectation of an asset, after all runs and decisions.

    A check therefore fails exactly until its failures are resolved, by a run, a backfill or a
    promotion, or by a person who releases or discards a window. Before the first run, there are no
    results.
    """
    last = snapshot.last_run(transform.name) if transform.all_expectations else None
    if last is None:
        return
    results = results_since(snapshot, transform.name, last["commit_number"] - _RECENT)
    failing = check_results.open_failures(snapshot, transform, results)
    for expectation in transform.all_expectations:
        own_results = [r for r in results if r.expectation == expectation.name]
        failures = {
            window: found_failures[expectation.name]
            for window, found_failures in failing.items()
            if expectation.name in found_failures
        }
        yield _evaluation(names, transform, expectation, last, failures, _whole(own_results, last))


def _whole(own_results: Sequence[CheckResult], last: Mapping[str, Any]) -> CheckResult | None:
    """Return an expectation's result in the last run, if the rows failed it only as a whole.

    Such a result lists no failing rows. Return None in all other cases.

    Args:
        own_results: the results of the expectation, the newest last.
        last: the last run's row of the ledger.
    """
    newest = own_results[-1] if own_results else None
    if (
        newest is None
        or newest.commit_number != last["commit_number"]
        or newest.success
        or newest.failures
    ):
        return None
    return newest


def _evaluation(
    names: Names,
    transform: Definition,
    expectation: Expectation,
    last: Mapping[str, Any],
    failures: Mapping[check_results.Place, str],
    failed_result: CheckResult | None,
) -> dg.AssetCheckEvaluation:
    passed = not failures and failed_result is None
    failing = sorted(failures.items())
    description = (
        literal(failed_result.observed)
        if failed_result is not None
        else _describe_failures(failing)
    )
    metadata: dict[str, Any] = {
        "expected": expectation.expected,
        "failed": len(failing) if failed_result is None else failed_result.rows_failed,
        "through arrival": last["through_arrival"],
        "run": last["run"],
    }
    if failing:
        metadata["failures"] = _table(failing)
    if not passed and expectation.name in INTEGRITY_CHECKS:
        description = f"This is {FAULT_TEXT}: {description}. {describe_remedy(transform)}"
        metadata["remedy"] = dg.MetadataValue.md(describe_remedy(transform))
    return dg.AssetCheckEvaluation(
        asset_key=names.key(transform.published_table),
        check_name=check_names(transform)[expectation.name],
        passed=passed,
        metadata=metadata,
        severity=_SEVERITY[expectation.level == WARNING],
        description=description,
    )


def draw_history(
    snapshot: Snapshot, transform: Definition, facts: RunFacts
) -> Mapping[str, dg.MarkdownMetadataValue]:
    """Return a picture of the results of a run and of the runs before it; {} without results."""
    newest = results_since(snapshot, transform.name, facts.commit_number - _DRAWN)
    shown = [result for result in newest if result.commit_number <= facts.commit_number]
    if not shown:
        return {}
    drawn = picture_checks.history_chart(
        shown, title=f"Validation results of {transform.name}, by run"
    )
    return {"history": embed_svg("history", to_svg(drawn))}


def _expectation_metadata(expectation: Expectation) -> dict[str, Any]:
    metadata: dict[str, Any] = {"expected": expectation.expected, "level": expectation.level}
    if expectation.notes:
        metadata["notes"] = dg.MetadataValue.md(expectation.notes)
    if expectation.meta:
        metadata["meta"] = dg.MetadataValue.json(dict(expectation.meta))
    return metadata


def _description(expectation: Expectation) -> str:
    if expectation.level == WARNING:
        effect = "a warning: rows that fail are published and marked"
    else:
        effect = "rows that fail are quarantined"
    blame = f"; a failure is {FAULT_TEXT}" if expectation.name in INTEGRITY_CHECKS else ""
    summary = f"`{expectation.name}`: expects {expectation.expected}; {effect}{blame}."
    if expectation.description:
        return f"{expectation.description} {summary}"
    return summary


def _table(failing: Sequence[tuple[check_results.Place, str]]) -> dg.TableMetadataValue:
    lines = [(format_instant(start), keys, seen) for (start, keys), seen in failing[:_SHOWN]]
    more = [(f"… and {len(failing) - _SHOWN:,} more",)] if failing[_SHOWN:] else []
    return as_table(("window", "keys", "observed"), [*lines, *more])


def _describe_failures(failing: Sequence[tuple[check_results.Place, str]]) -> str:
    if not failing:
        return "as expected"
    (start, _), observed = failing[0]
    return f"{len(failing):,} failed, the first at {format_instant(start)}: {literal(observed)}"
