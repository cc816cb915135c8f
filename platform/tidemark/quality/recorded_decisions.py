"""Repeat recorded decisions, so that a retry publishes the same rows as the first attempt.

A run that was killed while it published a commit may have written some of the tables. The next run
publishes the commit again, and the expectations may have changed by then. If each attempt decided
independently, a window could end up in both the published table and the quarantine, or in neither.
Therefore, a retry does not validate rows again. Its expectations return the recorded results:

| the first attempt wrote | the retry |
| --- | --- |
| nothing | validates the rows by the current expectations, like a first attempt |
| the quarantine | quarantines the same rows, and only validates warnings again |
| the results | repeats every result |
| the published table | publishes no further rows |

If tables have lost commits, a commit may be retried after later commits. Any of these records may
then be missing or incomplete. The retry validates an expectation again if its record is not
complete. If the published table has the commit and the quarantine does not have it, the retry
quarantines every row that is not published.
"""

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.base.instants import instant
from tidemark.compute.compare import keys_as_json
from tidemark.define.expectations.expectation import (
    ERROR,
    WARNING,
    Evidence,
    Expectation,
    Validation,
    Windowed,
)
from tidemark.quality import results
from tidemark.store.asset import Asset
from tidemark.store.commits.commit_info import CommitInfo
from tidemark.store.commits.conditions import number_is

_Place = tuple[int, str]
"""The identity of a row: the start of its window in microseconds, and its keys as JSON."""

_AT, _KEYS, _OBSERVED = "_decided_at", "_decided_keys", "_decided_observed"


@dataclass
class _Recorded:
    """The recorded result of one expectation.

    Args:
        failing: the rows that fail, each with the observed value.
        everything: the observed value if the rows fail as a whole, else None.
        partial: true if there may be failing rows that are not in `failing`.
    """

    level: str
    expected: str
    failing: dict[_Place, str] = field(default_factory=dict[_Place, str])
    everything: str | None = None
    partial: bool = False

    def expectation(self, name: str) -> Windowed:
        """Return an expectation whose validation repeats the recorded result."""
        return Windowed(
            name=name, expected=self.expected, level=self.level, validate=self._validate
        )

    def _validate(self, rows: DataFrame, evidence: Evidence) -> Validation:
        if self.everything is not None:
            return Validation(rows, F.lit(True), F.lit(self.everything))
        if not self.failing:
            return Validation(rows, F.lit(False), F.lit(""))
        known = rows.sparkSession.createDataFrame(
            [(*place, observed) for place, observed in self.failing.items()],
            f"{_AT} BIGINT, {_KEYS} STRING, {_OBSERVED} STRING",
        )
        start, keys = F.unix_micros("window_start"), keys_as_json(evidence.transform.keys)
        found = rows.withColumns({_AT: start, _KEYS: keys})
        found = found.join(F.broadcast(known), [_AT, _KEYS], "left")
        return Validation(found, F.col(_OBSERVED).isNotNull(), F.col(_OBSERVED))


def with_recorded_decisions(asset: Asset, marker: CommitInfo) -> Asset:
    """Return the asset with expectations that repeat an earlier attempt's decisions on this commit.

    Return the asset itself if no earlier attempt has recorded a decision.
    """
    transform, store = asset.transform, asset.warehouse

    def has(table: str) -> bool:
        return store.transaction(table, asset.app) >= marker.commit_number

    validated, quarantined = has(results.TABLE), has(transform.quarantine_table)
    published = has(transform.table)
    if not (validated or quarantined or published):
        return asset
    known = _read_results(asset, marker) if validated else {}
    # A later commit may have deleted or replaced rows of this commit in the quarantine.
    whole = store.transaction(transform.quarantine_table, asset.app) == marker.commit_number
    if quarantined and (whole or validated):
        _add_quarantined(asset, marker, known)
    partial = {name for name, one in known.items() if one.partial and not whole}
    expectations: list[Expectation] = [
        one.expectation(name) for name, one in known.items() if name not in partial
    ]
    if published and not quarantined:
        # Without a quarantine table, the first attempt validated no rows.
        if store.exists(transform.quarantine_table) and (partial or not validated):
            expectations.append(_published_expectation(asset, marker, known))
    elif whole and not validated:
        expectations += _select_undecided(transform.expectations, known)
    else:
        undecided = partial if validated else {e.name for e in transform.expectations} - {*known}
        expectations += [e for e in transform.expectations if e.name in undecided]
    decided = copy(asset)
    decided.transform = replace(transform, expectations=tuple(expectations))
    return decided


def _read_results(asset: Asset, marker: CommitInfo) -> dict[str, _Recorded]:
    commit_number, table_id = marker.commit_number, asset.table_id
    rows = asset.warehouse.take(results.TABLE, number_is("commit_number", commit_number))
    found = dict[str, _Recorded]()
    for row in rows.to_pylist():
        if (row["asset"], row["table_id"]) != (asset.transform.name, table_id):
            continue
        one = _Recorded(row["level"], row["expected"])
        for failure in row["failures"]:
            one.failing[instant(failure["window_start"]), failure["keys"]] = failure["observed"]
        erased = row["observed"] == results.ERASED_TEXT
        if not row["success"] and not one.failing and not erased:
            one.everything = row["observed"]
        one.partial = erased or len(row["failures"]) == results.MAX_FAILURES
        found[row["expectation"]] = one
    return found


def _published_expectation(
    asset: Asset, marker: CommitInfo, known: dict[str, _Recorded]
) -> Windowed:
    """Return an expectation that fails for the rows that the commit did not publish.

    A row with a recorded failure of level `error` passes this expectation: the recorded failure is
    enough to quarantine the row.

    Args:
        known: the recorded results, by the name of the expectation.
    """
    table, keys = asset.transform.table, keys_as_json(asset.transform.keys)
    start = F.unix_micros("window_start")
    listed = {place for one in known.values() if one.level == ERROR for place in one.failing}

    def validate(rows: DataFrame, _: Evidence) -> Validation:
        published = asset.warehouse.read(table).where(
            F.col("commit_number") >= marker.commit_number
        )
        published = published.select(
            start.alias(_AT), keys.alias(_KEYS), F.lit("").alias(_OBSERVED)
        )
        if listed:
            more = [(*place, "") for place in listed]
            published = published.unionByName(
                rows.sparkSession.createDataFrame(more, published.schema)
            ).distinct()
        found = rows.withColumns({_AT: start, _KEYS: keys}).join(published, [_AT, _KEYS], "left")
        return Validation(found, F.col(_OBSERVED).isNull(), F.lit("not published"))

    return Windowed(
        name="quarantined by an earlier attempt",
        expected="published by the first attempt",
        validate=validate,
    )


def _add_quarantined(asset: Asset, marker: CommitInfo, known: dict[str, _Recorded]) -> None:
    """Add the failures of all quarantined rows to the recorded results, which list only some."""
    table, keys = asset.transform.quarantine_table, keys_as_json(asset.transform.keys)
    rows = asset.warehouse.read(table).where(F.col("commit_number") == marker.commit_number)
    for start, text, failed in rows.select(
        F.unix_micros("window_start"), keys, "failed_expectations"
    ).collect():
        for each in failed:
            one = known.setdefault(each["expectation"], _Recorded(each["level"], each["expected"]))
            one.failing.setdefault((start, text), each["observed"])


def _select_undecided(
    expectations: Iterable[Expectation], known: dict[str, _Recorded]
) -> Iterator[Expectation]:
    """Yield the current expectations that have no recorded result.

    Each expectation of level `error` is replaced by an expectation that all rows pass, because the
    quarantine has recorded all failures of this level.
    """
    for expectation in expectations:
        if expectation.name in known:
            continue
        if expectation.level == WARNING:
            yield expectation
        else:
            yield _Recorded(ERROR, expectation.expected).expectation(expectation.name)
