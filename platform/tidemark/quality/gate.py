"""The gate: the rows that a commit is about to publish are judged, and those that fail withheld.

Rows are computed once, and kept by the engine while they are judged and written. Quarantine is
settled before anything is published, and each table takes a commit once, so that a run which is
killed in between is completed as it would have gone on.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.compute.compare import named
from tidemark.define.expectations.expectation import ERROR
from tidemark.define.transform import WindowedTransform
from tidemark.quality import quarantine, results
from tidemark.quality.evidence import Batch
from tidemark.quality.gx import ROW
from tidemark.quality.judge import judge, row_number
from tidemark.quality.results import Result
from tidemark.store.marker import Marker
from tidemark.store.warehouse import Warehouse

PASSED, WARNED = "passed", "warned"

_Failed = tuple[str, str, str, str]


@dataclass(frozen=True)
class Passed:
    """What the gate lets through.

    Args:
        rows: to publish, each with its `quality`.
        kept: of them, those that stay as they had been published, in the place of withheld ones.
        quarantined: rows withheld.
        warned: rows published with a warning.
    """

    rows: DataFrame
    kept: int = 0
    quarantined: int = 0
    warned: int = 0


@contextmanager
def gate(
    warehouse: Warehouse, transform: WindowedTransform, marker: Marker, rows: DataFrame
) -> Iterator[Passed]:
    """Judge the rows of a commit, record what was found, and withhold what fails.

    Args:
        rows: as they would be published; where there is a column `gone` that is true, a row that
            is to leave.
    """
    if not transform.expectations:
        yield Passed(rows)
        return
    quarantine.create(warehouse, transform, rows)
    batch, columns = Batch(warehouse, transform, marker), rows.columns
    gone = F.col("gone") if "gone" in columns else F.lit(False)
    marks = {ROW: row_number(transform), "_keys": named(transform.keys), "_gone": gone}
    rows = rows.withColumns(marks).persist()
    try:
        # Neither waits for the other: what the engine leaves idle is used.
        with ThreadPoolExecutor(1) as aside:
            held = aside.submit(batch.withheld().isEmpty)
            found = judge(rows.where("NOT _gone").drop("_gone", "gone"), batch)
            empty = held.result()
            written = aside.submit(results.append, batch, found)
            yield _split(rows, batch, found, columns, empty=empty)
            written.result()
    finally:
        rows.unpersist()
        batch.forget()


def _split(
    rows: DataFrame, batch: Batch, found: Sequence[Result], columns: list[str], *, empty: bool
) -> Passed:
    """Withhold the rows that fail, and let the others through."""
    failed: dict[int, list[_Failed]] = defaultdict(list)
    for result in found:
        for failure in result.failures:
            if failure.row is not None:
                failed[failure.row].append(_told(result, failure.observed))
    together = [_told(r, r.text()) for r in found if r.together]
    marked = _marked(rows, failed, together)
    settled = quarantine.Settled()
    levels = {f[1] for fs in failed.values() for f in fs} | {f[1] for f in together}
    if ERROR in levels or not empty:
        settled = quarantine.settle(batch, marked)
    stands = F.col(ROW).isin(settled.released) if settled.released else F.lit(False)
    quality = (
        F.when(F.col("_gone"), None)
        .when(stands, quarantine.RELEASED)
        .when(F.size("failed") > 0, WARNED)
        .otherwise(PASSED)
    )
    good = marked.where(~F.col("_bad") | stands).withColumn("quality", quality).select(columns)
    if settled.kept is not None:
        good = good.unionByName(settled.kept.select(columns))
    own = sum(all(f[1] != ERROR for f in fs) for fs in failed.values())
    warned = found[0].count - settled.withheld if together and found else own
    kept = 0 if settled.kept is None else settled.kept.count()
    return Passed(good, kept, settled.withheld, warned)


def _marked(
    rows: DataFrame, failed: Mapping[int, list[_Failed]], together: list[_Failed]
) -> DataFrame:
    """`rows` with `failed`, what each one fails, and `_bad`, whether it is to be withheld."""
    none = F.array().cast(quarantine.FAILED)
    every = F.array(*[_literal(f) for f in together]).cast(quarantine.FAILED) if together else none
    if failed:
        local = rows.sparkSession.createDataFrame(
            [*failed.items()], f"{ROW} BIGINT, _own {quarantine.FAILED}"
        )
        rows = rows.join(F.broadcast(local), ROW, "left")
        every = F.concat(F.coalesce("_own", none), every)
    bad = F.exists(every, lambda f: f["level"] == ERROR)
    judged = ~F.col("_gone")
    return rows.withColumns({"failed": F.when(judged, every), "_bad": judged & bad}).drop("_own")


def _literal(failed: _Failed) -> Column:
    names = ("expectation", "level", "observed", "expected")
    return F.struct(*[F.lit(v).alias(n) for n, v in zip(names, failed, strict=True)])


def _told(result: Result, observed: str) -> _Failed:
    expectation = result.expectation
    return expectation.name, expectation.level, observed, expectation.expected
