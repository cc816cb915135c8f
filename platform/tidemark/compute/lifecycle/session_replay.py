"""Replay how the sessions of one key merged and fired, given the times of their fragments.

A fragment is a set of events, usually from one arrival. Each event is at most a gap after the
previous one. `Replay` processes the fragments of a key in the order of their arrivals. It
determines which sessions the fragments formed, and when each session fired. The result is a
function of recorded values, so it never depends on how the arrivals were divided into runs.
Fragments affect each other only if a chain of touching fragments connects them. Some fragments of a
key can therefore be replayed alone, if they include every fragment that touches one of them.

A session fires with everything that has been merged into it by then. Its pane numbers continue from
the highest pane of the sessions that were merged, and its row replaces the rows that these sessions
had published. A session is open until the watermark passes its end after merging, even if one of
the merged sessions had closed before.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from tidemark.compute.slot import EARLY, FINAL, LATE, ON_TIME
from tidemark.define.triggers.trigger import Trigger


@dataclass(frozen=True)
class Fragment:
    """Events of one key, usually from one arrival.

    Instants are microseconds. A watermark of None is minus infinity.

    Args:
        start, end: the bounds of the session that the events form by themselves.
        arrival, position: the smallest arrival and the smallest position of the events.
        before, reached: the watermark before and after that arrival.
        early_at: the first arrival at or after the next multiple of the early interval; None if
            there is none yet, or no such interval.
        early_watermark: the watermark before the arrival `early_at`.
        late_at, late_watermark: the same for the late interval.
    """

    start: int
    end: int
    arrival: int
    position: int
    before: int | None
    reached: int | None
    early_at: int | None
    early_watermark: int | None
    late_at: int | None
    late_watermark: int | None


@dataclass(frozen=True, eq=False)
class Firing:
    """One firing of a session.

    Args:
        start, end: bounds of the merged session at that moment.
        pane: pane index, from 0.
        phase: EARLY, ON_TIME, LATE or FINAL of `tidemark.compute.slot`.
        fired: the arrival at which a trigger fired the session; None if the watermark fired it.
        fresh: indices of the session's fragments that had not fired before.
        replaces: the earlier firings whose rows this firing replaces.
    """

    start: int
    end: int
    pane: int
    phase: int
    fired: int | None
    fresh: tuple[int, ...]
    replaces: tuple["Firing", ...]

    @property
    def members(self) -> tuple[int, ...]:
        """Indices of all fragments of the firing: `fresh`, and the members of replaced firings."""
        indices: list[int] = []
        unvisited: list[Firing] = [self]
        while unvisited:
            firing = unvisited.pop()
            indices += firing.fresh
            unvisited += firing.replaces
        return tuple(sorted(indices))


@dataclass(eq=False)
class _Session:
    """A session as it is now.

    Args:
        pending: indices of the session's fragments that have not fired.
        newest: the index of the fragment that arrived last.
        open: true until the watermark passes the end of the session.
        pane: the index of the newest pane; -1 before the first firing.
        published: the firings whose rows are current.
        is_absorbed: true if another session has absorbed it.
    """

    start: int
    end: int
    pending: list[int]
    newest: int
    open: bool = True
    pane: int = -1
    published: list[Firing] = field(default_factory=list[Firing])
    is_absorbed: bool = False

    def absorb_session(self, absorbed: "_Session") -> None:
        """Merge another session, whose fragments arrived earlier, into this one."""
        self.start = min(self.start, absorbed.start)
        self.end = max(self.end, absorbed.end)
        # Append the shorter list to the longer; otherwise, each new fragment would copy a long
        # session.
        shorter, longer = sorted((self.pending, absorbed.pending), key=len)
        longer += shorter
        self.pending = longer
        self.pane = max(self.pane, absorbed.pane)
        self.published += absorbed.published
        absorbed.is_absorbed = True


class Replay:
    """The sessions of one key, computed from their fragments.

    Args:
        fragments: fragments of the key in any order, with every fragment that touches one of them.
        lateness: the allowed lateness in microseconds.
    """

    def __init__(self, fragments: Sequence[Fragment], trigger: Trigger, lateness: int) -> None:
        self.fragments = fragments
        self.trigger = trigger
        self.lateness = lateness
        self.firings: list[Firing] = []
        self._sessions: list[_Session] = []
        self._waiting: set[_Session] = set()

    def replay_through(self, arrival: int, watermark: int | None) -> list[Firing]:
        """Replay the fragments, and return all their firings in order.

        Args:
            arrival: the newest arrival, which may have no fragment.
            watermark: the watermark after that arrival, in microseconds; None for minus infinity.
        """
        order = sorted(range(len(self.fragments)), key=self._arrival_order)
        for number, group in groupby(order, key=lambda i: self.fragments[i].arrival):
            indices = list(group)
            first = self.fragments[indices[0]]
            self._pass_time(first.before, number)
            touched = {self._add_fragment(i, first.before) for i in indices}
            for session in sorted(touched, key=attrgetter("start")):
                if not session.is_absorbed:
                    self._fire_on_arrival(session, number, first.reached)
        self._pass_time(watermark, arrival)
        return self.firings

    def find_live_firings(self) -> set[Firing]:
        """Return the firings whose rows are current."""
        firings = set[Firing]()
        for session in self._sessions:
            firings.update(session.published)
        return firings

    def _arrival_order(self, index: int) -> tuple[int, int, int]:
        fragment = self.fragments[index]
        return fragment.arrival, fragment.position, fragment.start

    def _pass_time(self, watermark: int | None, arrival: int) -> None:
        """Fire the sessions that are due because the clock or the watermark has advanced.

        Args:
            watermark: the new watermark, in microseconds; None for minus infinity.
            arrival: the newest arrival, whose processing time the clock has reached.
        """
        for session in sorted(self._waiting, key=attrgetter("start")):
            if session.open:
                self._fire_on_tick(session, EARLY, session.end, arrival)
                if watermark is not None and session.end <= watermark:
                    self._add_firing(session, ON_TIME, None)
                    session.open = False
            if not session.open:
                final = session.end + self.lateness
                self._fire_on_tick(session, LATE, final, arrival)
                if session.pending and watermark is not None and final <= watermark:
                    self._add_firing(session, FINAL, None)
                if not session.pending:
                    self._waiting.discard(session)

    def _fire_on_tick(
        self, session: _Session, phase: int, end_watermark: int, arrival: int
    ) -> None:
        if not session.pending:
            return
        # All pending fragments arrived after the last tick, so all of them wait for the same tick
        # as the newest fragment.
        newest = self.fragments[session.newest]
        if phase == EARLY:
            tick_arrival = newest.early_at
            watermark = newest.early_watermark
        else:
            tick_arrival = newest.late_at
            watermark = newest.late_watermark
        is_reached = tick_arrival is not None and tick_arrival <= arrival
        if is_reached and (watermark is None or watermark < end_watermark):
            self._add_firing(session, phase, tick_arrival)

    def _add_fragment(self, index: int, watermark: int | None) -> _Session:
        fragment = self.fragments[index]
        session = _Session(fragment.start, fragment.end, [index], index)
        touching = self._find_touching(fragment)
        for absorbed in self._sessions[touching]:
            session.absorb_session(absorbed)
            self._waiting.discard(absorbed)
        self._sessions[touching] = [session]
        session.open = watermark is None or watermark < session.end
        self._waiting.add(session)
        if session.open:
            phase = EARLY
            firing = self.trigger.early
        else:
            phase = LATE
            firing = self.trigger.late
        if firing.is_full(len(session.pending)):
            self._add_firing(session, phase, fragment.arrival)
        return session

    def _find_touching(self, fragment: Fragment) -> slice:
        """Return the slice of `_sessions` that touch a fragment.

        If no session touches the fragment, the slice is empty and starts at the insertion point.
        Sessions are disjoint, so their ends are sorted, too.
        """
        first = bisect_left(self._sessions, fragment.start, key=attrgetter("end"))
        beyond = bisect_right(self._sessions, fragment.end, key=attrgetter("start"))
        return slice(first, beyond)

    def _fire_on_arrival(self, session: _Session, arrival: int, reached: int | None) -> None:
        if not session.pending:
            return
        if not session.open and self.trigger.late.by_arrival:
            self._add_firing(session, LATE, arrival)
        closes = reached is not None and session.end <= reached
        if session.open and not closes and self.trigger.early.by_arrival:
            self._add_firing(session, EARLY, arrival)

    def _add_firing(self, session: _Session, phase: int, fired: int | None) -> None:
        session.pane += 1
        firing = Firing(
            session.start,
            session.end,
            session.pane,
            phase,
            fired,
            tuple(session.pending),
            tuple(session.published),
        )
        session.published = [firing]
        session.pending = []
        self.firings.append(firing)
