"""Expectations on windows: their completeness, uniqueness, stability, volume, lateness and gaps.

| expectation | a window fails | compared with |
| --- | --- | --- |
| `matches_log()` | if its events are not exactly those of the log | the log |
| `unique_key()` | if it has two rows for the same keys | the rows themselves |
| `max_change_after_close(x)` | if its closed value changed by more than a share x | its prior row |
| `volume_within(x, of)` | if its events are off by more than the share x | earlier windows |
| `late_share_below(x)` | if the share x of its events, or more, were late | its own row |
| `no_gap(n)` | (a key fails) if it has no row in n consecutive windows | its other windows |
| `values_fit()`, automatic | if a value is null because it exceeds its type | its own row |
"""

import re

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Order
from pyspark.sql import functions as F

from tidemark.base.arguments import check_arguments
from tidemark.base.counts import format_count
from tidemark.base.errors import DefinitionError
from tidemark.base.instants import parse_duration
from tidemark.define.aggregates.combiner import OVERFLOWED, SLACK
from tidemark.define.expectations.expectation import (
    ERROR,
    FACTS,
    Evidence,
    ValidatedDefinition,
    Validation,
    Windowed,
)
from tidemark.define.helper_columns import OBSERVED

_PEERS = {"yesterday": "1 day", "last week": "1 week"}
_PEER = re.compile(r"(?:the same \w+ )?(yesterday|last week)")
_GAP_MEMORY_FACTOR = 10


def values_fit() -> Windowed:
    """Expect the value of each aggregate to fit its type.

    Every asset with an aggregate that can overflow has this expectation automatically.
    """

    def validate(rows: DataFrame, _: Evidence) -> Validation:
        names = F.concat_ws(", ", OVERFLOWED)
        return Validation(rows, F.size(OVERFLOWED) > 0, F.concat(F.lit("too large: "), names))

    return Windowed(
        name="values_fit()",
        expected="values that fit the types of their columns",
        columns=(OVERFLOWED,),
        validate=validate,
    )


@check_arguments
def matches_log(*, level: str = ERROR) -> Windowed:
    """Expect a window to contain exactly those events of the log that belong to it.

    No event is missing, no event counts twice, and every window with events in the log has a row.
    The events are counted again from the log and not from the state, except for too-late events
    that an earlier backfill or correction has included. After a failure, they are counted a second
    time before rows are quarantined, because a failure indicates a fault in Tidemark, or another
    writer to Tidemark's tables.

    Example:
        matches_log()

    Args:
        level: `error` quarantines windows that fail; `warning` publishes them.
    """

    def validate(rows: DataFrame, batch: Evidence) -> Validation:
        joined = (
            rows.alias("r")
            .join(batch.recounted_events.alias("log"), batch.same_window("r", "log"), "left")
            .select("r.*", F.coalesce("log.events", F.lit(0)).alias("_counted"))
        )
        counted = F.col("_counted")
        had = F.col("events")
        text = F.format_string("%d events, %d in the log", had, counted)
        return Validation(joined, had != counted, text)

    def absent(rows: DataFrame, batch: Evidence) -> DataFrame:
        window_columns = batch.transform.by_window
        present = rows.select(window_columns)
        if not batch.replaces_rows:
            # Windows that earlier commits published or quarantined need not be among these rows.
            for earlier in (batch.published_rows(), batch.quarantined_rows()):
                present = present.unionByName(earlier.select(window_columns))
        same = batch.same_window("log", "k")
        missing = batch.recounted_events.alias("log").join(present.alias("k"), same, "left_anti")
        text = F.format_string("no row, but %d events in the log", F.col("events"))
        return missing.select("window_start", *batch.transform.keys, text.alias(OBSERVED))

    return Windowed(
        name="matches_log()",
        expected="exactly the events of the log",
        level=level,
        validate=validate,
        absent=absent,
        confirmed=True,
    )


@check_arguments
def unique_key(*, level: str = ERROR) -> Windowed:
    """Expect one row for each window and keys.

    Example:
        unique_key()

    Args:
        level: `error` quarantines rows that fail; `warning` publishes them.
    """

    def validate(rows: DataFrame, batch: Evidence) -> Validation:
        same = Order.partitionBy(batch.transform.by_window)
        counted = rows.withColumn("_rows", F.count("*").over(same))
        return Validation(counted, F.col("_rows") > 1, F.format_string("%d rows", F.col("_rows")))

    return Windowed(
        name="unique_key()",
        expected="one row per window and keys",
        level=level,
        validate=validate,
    )


@check_arguments
def max_change_after_close(share: float, column: str = "events", *, level: str = ERROR) -> Windowed:
    """Expect a column of a closed window to change by no more than a share of its value.

    A window fails if `|now - before| > share * |before|`. `before` is the value in the window's
    newest published row that was not an early firing. A sum or mean of doubles may in addition
    differ by the rounding error that depends on the order of addition. A window also fails if the
    column changes from null to a value, or from a value to null.

    Example:
        max_change_after_close(0.1)  # no more than a tenth of its events more, or fewer
        max_change_after_close(0.05, "mean_delay", level="warning")

    Args:
        share: the allowed change, greater than 0; 0.1 is a tenth of the value before.
        column: the column to compare, a number.
        level: `error` quarantines windows that fail; `warning` publishes them.

    Raises:
        DefinitionError: the share is not greater than 0.
    """
    _check_share("max_change_after_close", share)

    def validate(rows: DataFrame, batch: Evidence) -> Validation:
        published_rows = batch.published_rows().where("timing <> 'EARLY'")
        joined = (
            rows.alias("r")
            .join(published_rows.alias("p"), batch.same_window("r", "p"), "left")
            .select(
                "r.*",
                F.col("p.commit_number").alias("_earlier"),
                F.col(f"p.{column}").alias("_was"),
            )
        )
        was = F.col("_was")
        current = F.col(column)
        allowed = F.abs(was.cast("double")) * share
        if column in batch.transform.aggregates:
            # A difference that the order of addition explains is not a change.
            allowed = allowed + F.coalesce(F.col(f"{SLACK}.{column}"), F.lit(0.0))
        moved = F.abs(current.cast("double") - was.cast("double")) > allowed
        is_one_null = was.isNull() != current.isNull()
        fails = ~current.eqNullSafe(was) & F.coalesce(moved, is_one_null)
        text = F.concat_ws(" after ", _format_number(current), _format_number(was))
        return Validation(joined, F.when(F.col("_earlier").isNotNull(), fails), text)

    return Windowed(
        name=f"max_change_after_close({share:g}, {column})",
        expected=f"at most {share:.0%} more or less than before",
        columns=(column,),
        slack=column not in FACTS,
        level=level,
        validate=validate,
    )


@check_arguments
def volume_within(
    share: float,
    of: str,
    column: str = "events",
    *,
    over: int = 1,
    at_least: float = 0,
    level: str = ERROR,
) -> Windowed:
    """Expect a closed window's volume to be close to that of earlier comparable windows.

    A window fails if `|value - earlier| > share * earlier`. Earlier windows count with their
    computed values, whether they were published or quarantined, so that a backfill validates as a
    stream does. A window is not validated without a comparable earlier window.

    Example:
        volume_within(0.3, of="the same hour last week", over=4, at_least=10)

    Args:
        share: the allowed difference: 0.3 is from 70 % to 130 %.
        of: the windows to compare with: `"the same hour last week"`, `"yesterday"`, or any length
            of time back, as in `"2 weeks"`.
        column: the column to compare, a number.
        over: compare with the mean of this many windows, each one `of` further back.
        at_least: validate only if the earlier value is at least this: a share of a few events is a
            matter of chance.
        level: `error` quarantines windows that fail; `warning` publishes them.

    Raises:
        DefinitionError: the share is not greater than 0, `over` is less than 1, or `of` does not
            lead back in time.
    """
    _check_share("volume_within", share)
    if over < 1:
        raise DefinitionError(f"volume_within: `over` must be 1 or more (got {over}).")
    match = _PEER.fullmatch(of)
    distance = of
    if match is not None:
        distance = _PEERS[match[1]]
    back = parse_duration(distance)
    if back <= 0:
        raise DefinitionError(
            "volume_within: `of` must be 'yesterday', 'the same hour last week', or a duration "
            f"greater than zero, such as '2 weeks' (got '{of}')."
        )

    def validate(rows: DataFrame, batch: Evidence) -> Validation:
        window_columns = batch.transform.by_window
        value_column = F.col(column).cast("double").alias("_value")

        def select_values(computed: DataFrame) -> DataFrame:
            closed = computed.where("timing <> 'EARLY'")
            return closed.select(*window_columns, value_column, "commit_number")

        quarantined = select_values(batch.quarantined_rows(back * over))
        published = select_values(batch.published_rows(back * over))
        revisions = select_values(batch.unvalidated_rows)
        revisions = revisions.unionByName(quarantined).unionByName(published)
        newest_value = F.max_by("_value", "commit_number").alias("_value")
        values = revisions.groupBy(window_columns).agg(newest_value)
        # A window is compared with `over` earlier ones, so a value moves to `over` later ones.
        distances = F.array([F.lit(back * (n + 1)) for n in range(over)])
        moved = values.withColumn("_back", F.explode(distances)).withColumns(
            {
                "window_start": _shift_back("window_start"),
                "window_end": _shift_back("window_end"),
            }
        )
        usual = moved.withColumnRenamed("_value", "_usual")
        if over > 1:
            usual = usual.groupBy(window_columns).agg(F.avg("_usual").alias("_usual"))
        joined = (
            rows.alias("r")
            .join(usual.alias("u"), batch.same_window("r", "u"), "left")
            .select("r.*", "u._usual")
        )
        value = F.col(column).cast("double")
        peer = F.col("_usual")
        validated = (peer >= at_least) & (F.col("timing") != "EARLY")
        off = ~value.eqNullSafe(peer) & F.coalesce(F.abs(value - peer) > peer * share, F.lit(True))
        text = F.concat(_format_number(F.col(column)), F.lit(", usually "), _format_number(peer))
        return Validation(joined, F.when(validated, off), text)

    arguments = [f"{share:g}", of]
    if column != "events":
        arguments.append(column)
    if over > 1:
        arguments.append(f"over={over}")
    if at_least:
        arguments.append(f"at_least={at_least:g}")
    return Windowed(
        name=f"volume_within({', '.join(arguments)})",
        expected=f"within {share:.0%} of {of}",
        columns=(column,),
        level=level,
        validate=validate,
    )


@check_arguments
def late_share_below(share: float, *, level: str = ERROR) -> Windowed:
    """Expect less than a share of a window's events to be late.

    An event is late if it arrived after the watermark had passed the window's end. A window fails
    if `late_events / events >= share`. Too-late events are not part of the window; they are in the
    late table.

    Example:
        late_share_below(0.2)

    Args:
        share: the share at which a window fails, greater than 0; 0.2 is a fifth.
        level: `error` quarantines windows that fail; `warning` publishes them.

    Raises:
        DefinitionError: the share is not greater than 0.
    """
    _check_share("late_share_below", share)

    def validate(rows: DataFrame, batch: Evidence) -> Validation:
        late = F.col("late_events") / F.col("events")
        text = F.format_string("%d of %d events late", F.col("late_events"), F.col("events"))
        return Validation(rows, late >= share, text)

    return Windowed(
        name=f"late_share_below({share:g})",
        expected=f"less than {share:.0%} late",
        level=level,
        validate=validate,
    )


@check_arguments
def no_gap(windows: int, *, level: str = ERROR) -> Windowed:
    """Expect every key to have at least one row in any `windows` consecutive windows.

    A silent key has no row, so nothing is quarantined. The check fails for as long as the key is
    silent, and in a run that computes a window on either side of a gap. The check ignores a key
    that has been silent for ten times `windows`.

    Example:
        no_gap(3)

    Args:
        windows: the number of consecutive windows without a row of the key at which the check
            fails, 1 or more.
        level: `error` or `warning`, the severity of a failed check.

    Raises:
        DefinitionError: `windows` is less than 1, or, when the asset is defined, its windows are
            not consecutive, as with sessions.
    """
    if windows < 1:
        raise DefinitionError(f"no_gap: `windows` must be 1 or more (got {windows}).")

    def absent(rows: DataFrame, batch: Evidence) -> DataFrame:
        period = batch.transform.window.period
        keys = batch.transform.keys
        assert period is not None
        back = period * windows * _GAP_MEMORY_FACTOR
        fresh = F.lit(True).alias("_fresh")
        closed = rows.where("timing <> 'EARLY'")
        sources = [batch.published_rows(back), batch.quarantined_rows(back)]
        starts = closed.select("window_start", *keys, fresh)
        for source in sources:
            earlier = source.select("window_start", *keys, F.lit(False).alias("_fresh"))
            starts = starts.unionByName(earlier)
        newest = closed.agg(F.max("window_start").alias("_newest"))
        starts = starts.groupBy("window_start", *keys).agg(F.bool_or("_fresh").alias("_fresh"))
        starts = starts.join(F.broadcast(newest), F.col("window_start") <= F.col("_newest"))
        order = Order.partitionBy(*keys or [F.lit(0)]).orderBy("window_start")
        following = F.lead("window_start").over(order)
        length = F.unix_micros(F.coalesce(following, "_newest")) - F.unix_micros("window_start")
        # Between two windows of a key that are n periods apart, there are n - 1 windows.
        silent = F.round(length / period).cast("int") - following.isNotNull().cast("int")
        is_newest = following.isNull() | F.col("_fresh") | F.lead("_fresh").over(order)
        gaps = starts.withColumns({"_silent": silent, "_is_newest": is_newest, "_next": following})
        until = F.when(F.col("_next").isNull(), " so far").otherwise("")
        text = F.concat(F.lit("silent for "), F.col("_silent"), F.lit(" windows"), until)
        return gaps.where(F.col("_is_newest") & (F.col("_silent") >= windows)).select(
            "window_start", *keys, text.alias(OBSERVED)
        )

    return Windowed(
        name=f"no_gap({windows})",
        expected=f"no silence of {format_count(windows, 'window')}",
        level=level,
        absent=absent,
        supports=_check_step,
    )


def _check_share(function: str, share: float) -> None:
    if not 0 < share < float("inf"):
        raise DefinitionError(
            f"{function}: `share` must be a finite number greater than 0 (got {share}); for "
            "example, 0.3 is 30 %."
        )


def _check_step(transform: ValidatedDefinition) -> None:
    if transform.window.period is None:
        raise DefinitionError(
            f"Asset '{transform.name}': no_gap needs consecutive windows, but its windows are "
            f"{transform.window}. Remove no_gap."
        )


def _shift_back(column: str) -> Column:
    return F.timestamp_micros(F.unix_micros(column) + F.col("_back"))


def _format_number(value: Column) -> Column:
    return F.coalesce(F.round(value.cast("double"), 3).cast("string"), F.lit("null"))
