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

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.base.instants import parse_instant
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

_RowId = tuple[int, str]
"""The identity of a row: the start of its window in microseconds, and its keys as JSON."""

_START = "_decided_start"
_KEYS = "_decided_keys"
_OBSERVED = "_decided_observed"


@dataclass
class _RecordedResult:
    """The recorded result of one expectation.

    Args:
        failing: the rows that fail, each with the observed value.
        everything: the observed value if the rows fail as a whole, else None.
        is_partial: true if there may be failing rows that are not in `failing`.
    """

    level: str
    expected: str
    failing: dict[_RowId, str] = field(default_factory=dict[_RowId, str])
    everything: str | None = None
    is_partial: bool = False

    def to_expectation(self, name: str) -> Windowed:
        """Return an expectation whose validation repeats the recorded result."""
        return Windowed(
            name=name, expected=self.expected, level=self.level, validate=self._repeat_result
        )

    def _repeat_result(self, rows: DataFrame, evidence: Evidence) -> Validation:
        if self.everything is not None:
            return Validation(rows, F.lit(True), F.lit(self.everything))
        if not self.failing:
            return Validation(rows, F.lit(False), F.lit(""))
        recorded: list[tuple[int, str, str]] = []
        for (start, keys), observed in self.failing.items():
            recorded.append((start, keys, observed))
        columns = f"{_START} BIGINT, {_KEYS} STRING, {_OBSERVED} STRING"
        failing = rows.sparkSession.createDataFrame(recorded, columns)
        identified = _add_row_id(rows, evidence.transform.keys)
        validated = identified.join(F.broadcast(failing), [_START, _KEYS], "left")
        return Validation(validated, F.col(_OBSERVED).isNotNull(), F.col(_OBSERVED))


_Results = dict[str, _RecordedResult]
"""Recorded results, by the name of the expectation."""


@dataclass(frozen=True)
class _EarlierAttempt:
    """The tables to which earlier attempts have written a commit.

    Args:
        wrote_results: true if the table of results has the commit.
        wrote_quarantine: true if the quarantine table has the commit.
        wrote_rows: true if the published table has the commit.
        has_whole_quarantine: true if the quarantine table still has all rows of the commit. A later
            commit may have deleted or replaced some.
    """

    wrote_results: bool
    wrote_quarantine: bool
    wrote_rows: bool
    has_whole_quarantine: bool


def with_recorded_decisions(asset: Asset, commit_info: CommitInfo) -> Asset:
    """Return the asset with expectations that repeat an earlier attempt's decisions on this commit.

    Return the asset itself if no earlier attempt has recorded a decision.
    """
    attempt = _find_earlier_attempt(asset, commit_info)
    if not (attempt.wrote_results or attempt.wrote_quarantine or attempt.wrote_rows):
        return asset
    recorded: _Results = {}
    if attempt.wrote_results:
        recorded = _read_results(asset, commit_info)
    if attempt.wrote_quarantine and (attempt.has_whole_quarantine or attempt.wrote_results):
        _add_quarantined(asset, commit_info, recorded)
    expectations = _choose_expectations(asset, commit_info, attempt, recorded)
    decided = copy(asset)
    decided.transform = replace(asset.transform, expectations=tuple(expectations))
    return decided


def _find_earlier_attempt(asset: Asset, commit_info: CommitInfo) -> _EarlierAttempt:
    quarantine = asset.transform.quarantine_table

    def newest_commit(table: str) -> int:
        return asset.warehouse.transaction_version(table, asset.commit_app)

    number = commit_info.commit_number
    return _EarlierAttempt(
        wrote_results=newest_commit(results.TABLE) >= number,
        wrote_quarantine=newest_commit(quarantine) >= number,
        wrote_rows=newest_commit(asset.transform.published_table) >= number,
        has_whole_quarantine=newest_commit(quarantine) == number,
    )


def _choose_expectations(
    asset: Asset, commit_info: CommitInfo, attempt: _EarlierAttempt, recorded: _Results
) -> list[Expectation]:
    """Return the expectations of a retry: recorded results, and what must be validated again."""
    current = asset.transform.expectations
    incomplete: set[str] = set()
    chosen: list[Expectation] = []
    for name, result in recorded.items():
        if result.is_partial and not attempt.has_whole_quarantine:
            incomplete.add(name)
        else:
            chosen.append(result.to_expectation(name))
    if attempt.wrote_rows and not attempt.wrote_quarantine:
        # Without a quarantine table, the first attempt validated no rows.
        was_guarded = asset.warehouse.has_table(asset.transform.quarantine_table)
        if was_guarded and (incomplete or not attempt.wrote_results):
            chosen.append(_published_expectation(asset, commit_info, recorded))
    elif attempt.wrote_results:
        chosen += [e for e in current if e.name in incomplete]
    elif attempt.has_whole_quarantine:
        chosen += _select_undecided(current, recorded)
    else:
        chosen += [e for e in current if e.name not in recorded]
    return chosen


def _read_results(asset: Asset, commit_info: CommitInfo) -> _Results:
    rows = asset.warehouse.load_rows(
        results.TABLE, number_is("commit_number", commit_info.commit_number)
    )
    recorded: _Results = {}
    for row in rows.to_pylist():
        if row["asset"] != asset.transform.name or row["table_id"] != asset.table_id:
            continue
        result = _RecordedResult(row["level"], row["expected"])
        for failure in row["failures"]:
            row_id = (parse_instant(failure["window_start"]), failure["keys"])
            result.failing[row_id] = failure["observed"]
        is_erased = row["observed"] == results.ERASED_TEXT
        if not row["success"] and not result.failing and not is_erased:
            result.everything = row["observed"]
        result.is_partial = is_erased or len(row["failures"]) == results.MAX_FAILURES
        recorded[row["expectation"]] = result
    return recorded


def _published_expectation(asset: Asset, commit_info: CommitInfo, recorded: _Results) -> Windowed:
    """Return an expectation that fails for the rows that the commit did not publish.

    A row with a recorded failure of level `error` passes this expectation: the recorded failure is
    enough to quarantine the row.
    """
    failing: set[_RowId] = set()
    for result in recorded.values():
        if result.level == ERROR:
            failing |= result.failing.keys()

    def find_unpublished(rows: DataFrame, _: Evidence) -> Validation:
        published = asset.warehouse.read_frame(asset.transform.published_table)
        published = published.where(F.col("commit_number") >= commit_info.commit_number)
        with_id = _add_row_id(published, asset.transform.keys)
        passing = with_id.select(_START, _KEYS, F.lit("").alias(_OBSERVED))
        if failing:
            failing_rows = [(start, keys, "") for start, keys in failing]
            decided = rows.sparkSession.createDataFrame(failing_rows, passing.schema)
            passing = passing.unionByName(decided).distinct()
        identified = _add_row_id(rows, asset.transform.keys)
        validated = identified.join(passing, [_START, _KEYS], "left")
        return Validation(validated, F.col(_OBSERVED).isNull(), F.lit("not published"))

    return Windowed(
        name="quarantined by an earlier attempt",
        expected="published by the first attempt",
        validate=find_unpublished,
    )


def _add_quarantined(asset: Asset, commit_info: CommitInfo, recorded: _Results) -> None:
    """Add the failures of all quarantined rows to the recorded results, which list only some."""
    rows = asset.warehouse.read_frame(asset.transform.quarantine_table)
    rows = rows.where(F.col("commit_number") == commit_info.commit_number)
    with_id = _add_row_id(rows, asset.transform.keys)
    quarantined = with_id.select(_START, _KEYS, "failed_expectations")
    for start, keys, failed_expectations in quarantined.collect():
        for failed in failed_expectations:
            empty = _RecordedResult(failed["level"], failed["expected"])
            result = recorded.setdefault(failed["expectation"], empty)
            result.failing.setdefault((start, keys), failed["observed"])


def _add_row_id(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return rows with the columns of `_RowId`."""
    start = F.unix_micros("window_start")
    return rows.withColumns({_START: start, _KEYS: keys_as_json(keys)})


def _select_undecided(
    expectations: Iterable[Expectation], recorded: _Results
) -> Iterator[Expectation]:
    """Yield the current expectations that have no recorded result.

    Each expectation of level `error` is replaced by an expectation that all rows pass, because the
    quarantine has recorded all failures of this level.
    """
    for expectation in expectations:
        if expectation.name in recorded:
            continue
        if expectation.level == WARNING:
            yield expectation
        else:
            passed = _RecordedResult(ERROR, expectation.expected)
            yield passed.to_expectation(expectation.name)
