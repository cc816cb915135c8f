"""Expectations as asset checks, and quarantine as an asset with its two actions.

Each expectation of a transform is a check of its published asset, partitioned as that is. What a
run found is told by partition, from the results that the gate left in the table `checks`: here
nothing is judged.
"""

import json
import re
import warnings
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import dagster as dg

from tidemark.base.instants import instant, iso
from tidemark.charts import picture_checks
from tidemark.charts.chart import svg
from tidemark.define.definition import Definition
from tidemark.quality import WARNING, Expectation, results
from tidemark.quality.quarantine import HELD
from tidemark.quality.results import CheckResult
from tidemark.store.ledger import RunFacts
from tidemark.store.warehouse import Warehouse
from tidemark.verify.own_faults import OWN, VERDICT, remedy
from tidemark_assets.names import Names
from tidemark_assets.pictures import embedded
from tidemark_assets.tables import as_table, literal
from tidemark_streaming.glance import Glance
from tidemark_streaming.judged import results_since, withheld

_SHOWN = 20
_DRAWN = 60
"""Runs in a picture of the history."""
SEVERITY = {True: dg.AssetCheckSeverity.WARN, False: dg.AssetCheckSeverity.ERROR}


def check_names(transform: Definition) -> dict[str, str]:
    """Each expectation's name to that of its check, which has letters, digits and `_` alone."""
    found: dict[str, str] = {}
    for expectation in transform.expectations:
        plain = re.sub(r"\W+", "_", expectation.name).strip("_")
        numbered = (plain if n == 1 else f"{plain}_{n}" for n in count(1))
        found[expectation.name] = next(n for n in numbered if n not in found.values())
    return found


def specs(
    names: Names, transform: Definition, partitions: dg.PartitionsDefinition[str]
) -> list[dg.AssetCheckSpec]:
    """The checks of a transform's published asset."""
    with warnings.catch_warnings():
        # Dagster calls checks by partition a preview.
        warnings.simplefilter("ignore")
        return [
            dg.AssetCheckSpec(
                name,
                asset=names.key(transform.table),
                description=_description(expectation),
                partitions_def=partitions,
                metadata=_spoken(expectation),
            )
            for expectation, name in zip(
                transform.expectations, check_names(transform).values(), strict=True
            )
        ]


def evaluations(
    names: Names,
    transform: Definition,
    found: Sequence[CheckResult],
    begins: Mapping[str, int],
) -> Iterator[dg.AssetCheckEvaluation]:
    """Results of one run, by partition.

    Args:
        begins: each partition's key and start, in order and without gaps.
    """
    keys, starts = list(begins), list(begins.values())
    for result in found:
        unlisted = _unlisted_from(result)
        failing: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for failure in result.failures:
            place = bisect_right(starts, instant(failure["window_start"])) - 1
            failing[keys[max(place, 0)]].append(failure)
        for key, after in zip(keys, [*starts[1:], None], strict=True):
            unknown = unlisted is not None and (after is None or after > unlisted)
            yield _evaluation(names, transform, result, failing[key], key, unknown=unknown)


def checked(
    names: Names, glance: Glance, transform: Definition, commits: Collection[int]
) -> Iterator[dg.AssetCheckEvaluation]:
    """What the runs of these commits found."""
    if transform.expectations:
        found = results_since(glance, transform.name, min(commits) - 1)
        told = [r for r in found if r.seq in commits]
        yield from streamed(names, transform, told, withheld(glance, transform))


def streamed(
    names: Names,
    transform: Definition,
    told: Sequence[CheckResult],
    held: Sequence[Mapping[str, Any]],
) -> Iterator[dg.AssetCheckEvaluation]:
    """Results of some runs of a stream, together: one for each expectation.

    A check fails also while a window is withheld, as a later run judges only what changed. It is
    told without a partition: outside a run Dagster takes one result of a partition, and no second.

    Args:
        told: of this transform, in the order of their commits.
        held: the rows in its quarantine.
    """
    by_name: dict[str, list[CheckResult]] = defaultdict(list)
    for result in told:
        by_name[result.expectation].append(result)
    for found in by_name.values():
        together = _together(transform, found, held)
        yield _evaluation(names, transform, together, together.failures)


def standing(
    transform: Definition,
    told: Sequence[CheckResult],
    held: Sequence[Mapping[str, Any]],
    start: int,
    end: int,
) -> Iterator[CheckResult]:
    """The newest result of each expectation, as it stands for the windows that start in [start,
    end): whatever run withheld them. Otherwise as `streamed`."""
    for newest in {result.expectation: result for result in told}.values():
        found = _together(transform, [newest], held)
        here = [f for f in found.failures if start <= instant(f["window_start"]) < end]
        elsewhere = bool(found.failures) and not here
        # Beyond what a result lists nobody knows: that is not as expected.
        unlisted = _unlisted_from(newest)
        hidden = unlisted is not None and end > unlisted
        success = (found.success or elsewhere) and not hidden
        yield replace(found, failures=here, success=success)


def _unlisted_from(result: CheckResult) -> int | None:
    """From which window start on a result may have failures that it does not list, as there are
    more windows that fail than it lists; None where there are not."""
    listed = [instant(failure["window_start"]) for failure in result.failures]
    if result.rows_failed <= len(listed) or len({*listed}) < results.MOST:
        return None
    return max(listed)


def _together(
    transform: Definition,
    found: Sequence[CheckResult],
    held: Sequence[Mapping[str, Any]],
) -> CheckResult:
    """Results of one expectation as one, which fails also while a window is withheld for it."""
    failing = [
        {"window_start": row["window_start"], "keys": _keys(transform, row), **failed}
        for row in held
        for failed in row["failed"]
        if failed["expectation"] == found[-1].expectation and row["status"] == HELD
    ]
    failing += [failure for result in found for failure in result.failures]
    failures = {(f["window_start"], f["keys"]): f for f in failing}
    return replace(
        found[-1],
        success=not failures and all(result.success for result in found),
        failures=[failures[place] for place in sorted(failures)],
    )


def _evaluation(
    names: Names,
    transform: Definition,
    result: CheckResult,
    failing: Sequence[Mapping[str, Any]],
    partition: str | None = None,
    *,
    unknown: bool = False,
) -> dg.AssetCheckEvaluation:
    # Where all rows fail together none is listed.
    everywhere = not result.success and not result.failures
    passed = not everywhere and not failing and not unknown
    more = result.rows_failed > len(result.failures) > 0
    metadata, description = _metadata(result, failing), _told(failing, more=more)
    if everywhere:
        description = literal(result.observed)
    if unknown and not failing:
        description = f"not known: {result.rows_failed:,} failed in all, more than are listed"
    if not passed and result.expectation in OWN:
        description = f"This is {VERDICT}: {description}. {remedy(transform)}"
        metadata["what to do"] = dg.MetadataValue.md(remedy(transform))
    return dg.AssetCheckEvaluation(
        asset_key=names.key(transform.table),
        check_name=check_names(transform)[result.expectation],
        passed=passed,
        metadata=metadata,
        severity=SEVERITY[result.level == WARNING],
        description=description,
        partition=partition,
    )


def history(
    warehouse: Warehouse, transform: Definition, facts: RunFacts
) -> Mapping[str, dg.MarkdownMetadataValue]:
    """The results of the newest runs up to this one, as a picture."""
    seq = facts.seq
    found = results.since(warehouse, transform.name, seq - _DRAWN, seq, facts.life)
    if not found:
        return {}
    drawn = picture_checks.history(found, title=f"What was expected of {transform.name}, by run")
    return {"history": embedded("history", svg(drawn))}


def _keys(transform: Definition, row: Mapping[str, Any]) -> str:
    """As a failure has them: of a window that is withheld and fails again one is told."""
    keys = {k: row[k] for k in transform.keys}
    return json.dumps(keys, default=str, ensure_ascii=False, separators=(",", ":"))


def _spoken(expectation: Expectation) -> dict[str, Any]:
    found: dict[str, Any] = {"expected": expectation.expected, "level": expectation.level}
    if expectation.notes:
        found["notes"] = dg.MetadataValue.md(expectation.notes)
    if expectation.meta:
        found["meta"] = dg.MetadataValue.json(dict(expectation.meta))
    return found


def _description(expectation: Expectation) -> str:
    effect = (
        "a warning: what fails is published, and marked"
        if expectation.level == WARNING
        else "what fails is withheld in quarantine"
    )
    blame = f"; where it fails, that is {VERDICT}" if expectation.name in OWN else ""
    told = f"`{expectation.name}`: expects {expectation.expected}; {effect}{blame}."
    return f"{expectation.description} {told}" if expectation.description else told


def _metadata(result: CheckResult, failures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "expected": result.expected,
        "failed": len(failures),
        "through arrival": result.through_arrival,
        "run": result.run,
    }
    if failures:
        lines = [(_window(f), f["keys"], f["observed"]) for f in failures[:_SHOWN]]
        more = [(f"… and {len(failures) - _SHOWN:,} more",)] if failures[_SHOWN:] else []
        found["failures"] = as_table(("window", "keys", "observed"), [*lines, *more])
    return found


def _told(failures: Sequence[Mapping[str, Any]], *, more: bool) -> str:
    if not failures:
        return "as expected"
    count = f"{len(failures):,}{' or more' if more else ''}"
    first = failures[0]
    observed = literal(str(first["observed"]))
    return f"{count} failed, the first at {_window(first)}: {observed}"


def _window(failure: Mapping[str, Any]) -> str:
    return str(iso(instant(failure["window_start"])))
