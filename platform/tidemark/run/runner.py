"""Runs: the only ways in which a transform is ever executed.

A run takes a range of arrivals, counts their events in the state, and publishes the windows that
fired. An incremental run takes the arrivals that came since the last one; a continuous query is
the same again and again; a backfill takes all arrivals so far, for a range of windows, which it
replaces; a correction replaces the windows that lack too-late events. Each is safe to repeat, to
kill at any point, and to run beside the others.
"""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace

from tidemark.base.errors import ConflictError, DataError, DefinitionError
from tidemark.compute import rollups as rolling
from tidemark.compute.pane import check, covered, partials
from tidemark.define import verdict as judge
from tidemark.define.rollup import RollUp
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Session
from tidemark.run.correct import Correction, lacking, told
from tidemark.run.publish import publish
from tidemark.store import ledger
from tidemark.store.coverage import Cover, Coverage, Position
from tidemark.store.ledger import RunFacts
from tidemark.store.log import Arrival, Log
from tidemark.store.marker import Marker
from tidemark.store.ranges import between
from tidemark.store.state import State
from tidemark.store.warehouse import Warehouse

ATTEMPTS = 12
FEW = 20_000
"""Events up to which the engine interprets an increment's plans instead of compiling them."""

_published: dict[str, Marker] = {}


def incremental(
    warehouse: Warehouse,
    transform: WindowedTransform,
    *,
    through: int | None = None,
    limit: int | None = None,
    known: Sequence[Arrival] = (),
) -> RunFacts | None:
    """Take in the arrivals that the asset has not seen, and publish what they fire.

    Args:
        through: the last arrival to take; all there are by default.
        limit: how many arrivals to take at most.
        known: arrivals that the caller has read already, in order.

    Returns:
        The run's facts; None where there was nothing to do.

    Raises:
        DataError: the source was never ingested.
        ConflictError: other runs of the asset were quicker, time and again.
    """
    if isinstance(transform, RollUp):
        if through is not None or limit is not None:
            raise DefinitionError(
                f"'{transform.name}' is a roll-up, which follows all that its base has taken in: "
                f"limit the runs of '{transform.base.name}' instead."
            )
        return _follow(warehouse, transform)
    log = Log(warehouse, transform.source)

    def plan(last: Marker) -> tuple[Marker, bool] | None:
        seen = last.after.at.arrival
        arrivals = [a for a in known if a.arrival > seen]
        if not known or (arrivals and arrivals[0].arrival > seen + 1):
            arrivals = log.timeline(seen, through)
        arrivals = arrivals[:limit]
        if not arrivals:
            return None
        after = last.after.advance(_position(arrivals[-1]))
        few = sum(a.rows for a in arrivals) <= FEW
        return Marker(mode="incremental", before=last.after, after=after), few

    return _execute(warehouse, transform, log, plan)


def backfill(
    warehouse: Warehouse,
    transform: WindowedTransform,
    start: int | None = None,
    end: int | None = None,
    *,
    answer: str = "as_streamed",
    reported: bool = False,
) -> RunFacts:
    """Compute windows anew from all arrivals so far, and replace them in one commit each.

    Args:
        start, end: the windows that start in [start, end), in microseconds; all by default, and
            always of sessions.
        answer: `as_streamed` counts what a stream would have counted; `complete` also counts the
            events that came too late.
        reported: whether the caller tells the orchestrator what it did.

    Raises:
        DefinitionError: an unknown answer, or only one bound, or an empty range; a roll-up, which
            follows the backfills of its base.
        DataError: the source was never ingested, or has no arrival yet.
        ConflictError: other runs of the asset were quicker, time and again.
    """
    _check_state(transform, "backfill")
    if answer not in ("as_streamed", "complete"):
        raise DefinitionError(f"The answer is 'as_streamed' or 'complete', not '{answer}'.")
    if (start is None) != (end is None) or (start is not None and end is not None and end <= start):
        raise DefinitionError("A backfill's range needs a start and a later end, or neither.")
    if isinstance(transform.window, Session):
        # A session may reach across any bound, so all are computed.
        start, end = None, None
    log = Log(warehouse, transform.source)

    def plan(last: Marker) -> tuple[Marker, bool]:
        newest = log.last()
        if newest is None:
            raise DataError(f"Source '{transform.source.name}' has no arrivals yet: ingest it.")
        at, before = _position(newest), last.after
        after = Coverage(at) if start is None else before.cover(Cover(start, end or 0, at))
        ranges = between(start, end)
        return Marker(
            mode="backfill", before=before, after=after, ranges=ranges, answer=answer
        ), False

    facts = _execute(warehouse, transform, log, plan, reported=reported)
    assert facts is not None
    return facts


def correct(
    warehouse: Warehouse, transform: WindowedTransform, *, most: int = 1000
) -> Correction | None:
    """Compute anew just the windows that lack too-late events, with these, and replace them.

    Args:
        most: how many of the changes to list.

    Returns:
        What it changed; None where no window lacks an event.

    Raises:
        DefinitionError: a roll-up, which follows the corrections of its base.
        ConflictError: other runs of the asset were quicker, time and again.
    """
    _check_state(transform, "correct")
    since = -1
    # A run that died elsewhere may have left nothing to correct, but something to publish.
    _published.pop(warehouse.path(transform.state_table), None)

    def plan(last: Marker) -> tuple[Marker, bool] | None:
        nonlocal since
        ranges = lacking(warehouse, transform)
        if ranges is None:
            return None
        since, stands = warehouse.version(transform.table), last.after
        return Marker(
            mode="correction", before=stands, after=stands, ranges=ranges, answer="complete"
        ), False

    facts = _execute(warehouse, transform, Log(warehouse, transform.source), plan)
    return None if facts is None else told(warehouse, transform, facts, since, most)


def _check_state(transform: WindowedTransform, verb: str) -> None:
    if isinstance(transform, RollUp):
        raise DefinitionError(
            f"'{transform.name}' is a roll-up, made of what '{transform.base.name}' has counted: "
            f"{verb} that, then run '{transform.name}', which follows it."
        )


def _execute(
    warehouse: Warehouse,
    transform: WindowedTransform,
    log: Log,
    plan: Callable[[Marker], tuple[Marker, bool] | None],
    *,
    reported: bool = False,
) -> RunFacts | None:
    state = State(warehouse, transform)
    known = warehouse.path(transform.state_table)

    def attempt() -> RunFacts | None:
        started = time.time_ns() // 1000
        try:
            # Another process may be about to publish what looks left behind here.
            last = _published.get(known) or _recovered(warehouse, transform, state)
            planned = plan(last)
            if planned is None:
                return None
            started_from, few = planned
            marker = replace(started_from, run=uuid.uuid4().hex, started=started, seq=last.seq + 1)
            if last.seq < 0:
                check(log, transform)
            with warehouse.interpreting() if few else nullcontext():
                facts = _run(warehouse, transform, log, marker, reported)
        except ConflictError:
            _published.pop(known, None)
            raise
        # Another process that runs the asset makes the next commit fail, so this may be kept.
        _published[known] = marker
        return facts

    return _insisted(transform, attempt)


def _follow(warehouse: Warehouse, transform: RollUp) -> RunFacts | None:
    def attempt() -> RunFacts | None:
        planned = rolling.plan(warehouse, transform)
        if planned is None:
            return None
        few = planned[1].total() <= FEW
        with warehouse.interpreting() if few else nullcontext():
            return _publish(warehouse, transform, *planned, reported=False)

    return _insisted(transform, attempt)


def _insisted(
    transform: WindowedTransform, attempt: Callable[[], RunFacts | None]
) -> RunFacts | None:
    """The first attempt that no other run was quicker than."""
    for n in range(ATTEMPTS):
        try:
            return attempt()
        except ConflictError:
            time.sleep(min(5.0, 0.25 * 2**n))
    raise ConflictError(
        f"Other runs of '{transform.name}' were quicker {ATTEMPTS} times; try again when fewer run."
    )


def _run(
    warehouse: Warehouse, transform: WindowedTransform, log: Log, marker: Marker, reported: bool
) -> RunFacts:
    state = State(warehouse, transform)
    earlier = None if marker.seq == 0 or marker.replaces else state.read()
    rows = partials(covered(log, transform, marker), transform, log, earlier)
    return _publish(warehouse, transform, marker, state.commit(rows, marker), reported)


def _recovered(warehouse: Warehouse, transform: WindowedTransform, state: State) -> Marker:
    last = state.last()
    if last.seq > ledger.published(warehouse, transform.name):
        _publish(warehouse, transform, last, state.counts(last), reported=False)
    return last


def _publish(
    warehouse: Warehouse,
    transform: WindowedTransform,
    marker: Marker,
    counts: Counter[int],
    reported: bool,
) -> RunFacts:
    with_late = bool(counts[judge.TOO_LATE] or counts[judge.NO_EVENT_TIME])
    published = publish(warehouse, transform, marker, with_late=with_late)
    # A run of a roll-up is about all windows, whichever it replaces.
    ranges = () if marker.mode == "rollup" else marker.ranges
    facts = RunFacts(
        run=marker.run,
        asset=transform.name,
        mode=marker.mode,
        answer=marker.answer,
        seq=marker.seq,
        from_arrival=-1 if marker.replaces else marker.before.at.arrival,
        through_arrival=marker.at.arrival,
        window_from=min((start for start, _ in ranges), default=None),
        window_to=max((end for _, end in ranges), default=None),
        started_at=marker.started,
        ended_at=time.time_ns() // 1000,
        watermark=marker.at.watermark,
        **published._asdict(),
        **{word: counts[code] for code, word in judge.VERDICTS.items()},
        reported=reported,
    )
    ledger.append(warehouse, facts)
    return facts


def _position(arrival: Arrival) -> Position:
    return Position(arrival.arrival, arrival.after, arrival.arrived_at)
