"""How sessions of one key merge and fire, told by their fragments alone.

A fragment is what one arrival brought to a session: events that follow each other within the gap.
`Replay` takes fragments of a key in the order of their arrivals and says which sessions they made,
and when each of these fired. It is a function of the recorded facts, so it gives the same answer
whenever it is asked; no step of it depends on how the arrivals were cut into runs. Fragments that
do not touch, not even by others between them, know nothing of each other: so a part of a key's
fragments may be replayed alone, if all that touches it is in it.

A session fires as it is merged at that moment. It goes on from the highest pane of its parts, and
takes the place of the rows that these had published. While the watermark has not passed its merged
end it is open, also when a part of it had closed before.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from tidemark.compute.slot import EARLY, FINAL, LATE, ON_TIME
from tidemark.define.trigger import Trigger


@dataclass(frozen=True)
class Fragment:
    """Events of one key and arrival; instants are microseconds, a watermark of None is -infinity.

    Args:
        start, end: their span, as a session.
        arrival, position: which arrival brought them, or the first of several that did, and the
            first one's place in it.
        before, reached: the watermark before and after that arrival.
        early_at: the first arrival at or after the next tick of an early interval; None: not yet.
        early_watermark: the watermark before that arrival.
        late_at, late_watermark: the same for a late interval.
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
        start, end: the session as merged then.
        pane: its index, from 0.
        phase: EARLY, ON_TIME, LATE or FINAL of `tidemark.compute.slot`.
        fired: the arrival with which it fired by its trigger; None where the watermark fired it.
        fresh: the fragments in it that had not fired before, as indices.
        replaces: firings whose rows it takes the place of.
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
        """All fragments in it, as indices: what fired before is in what it replaces."""
        found: list[int] = []
        left: list[Firing] = [self]
        while left:
            firing = left.pop()
            found += firing.fresh
            left += firing.replaces
        return tuple(sorted(found))


@dataclass(eq=False)
class _Session:
    """A session as it is now.

    Args:
        pending: its fragments that have not fired.
        newest: the one of these that came last.
        published: the firings whose rows stand.
        gone: whether another session has taken it in.
    """

    start: int
    end: int
    pending: list[int]
    newest: int
    open: bool = True
    pane: int = -1
    published: list[Firing] = field(default_factory=list[Firing])
    gone: bool = False

    def absorb(self, other: "_Session") -> None:
        """Take in another one, whose fragments came before."""
        self.start, self.end = min(self.start, other.start), max(self.end, other.end)
        # The shorter list joins the longer: a long session would be copied for each fragment.
        less, more = sorted((self.pending, other.pending), key=len)
        more += less
        self.pending = more
        self.pane = max(self.pane, other.pane)
        self.published += other.published
        other.gone = True


class Replay:
    """Sessions of one key.

    Args:
        fragments: in any order; all that touch one of them.
        trigger: when sessions fire.
        lateness: the allowed lateness, microseconds.
    """

    def __init__(self, fragments: Sequence[Fragment], trigger: Trigger, lateness: int) -> None:
        self.fragments = fragments
        self.trigger = trigger
        self.lateness = lateness
        self.firings: list[Firing] = []
        self._sessions: list[_Session] = []
        self._waiting: set[_Session] = set()

    def through(self, arrival: int, watermark: int | None) -> list[Firing]:
        """All firings in their order, as of an arrival and the watermark after it."""
        order = sorted(range(len(self.fragments)), key=self._place)
        for number, group in groupby(order, key=lambda i: self.fragments[i].arrival):
            indices = list(group)
            first = self.fragments[indices[0]]
            self._pass_time(first.before, number)
            touched = {self._join(i, first.before) for i in indices}
            for session in sorted(touched, key=attrgetter("start")):
                if not session.gone:
                    self._arrived(session, number, first.reached)
        self._pass_time(watermark, arrival)
        return self.firings

    def live(self) -> set[Firing]:
        """The firings whose rows stand."""
        return {firing for session in self._sessions for firing in session.published}

    def _place(self, index: int) -> tuple[int, int, int]:
        fragment = self.fragments[index]
        return fragment.arrival, fragment.position, fragment.start

    def _pass_time(self, watermark: int | None, arrival: int) -> None:
        """What fires up to an arrival's clock and the watermark before its rows."""
        for session in sorted(self._waiting, key=attrgetter("start")):
            if session.open:
                self._tick(session, EARLY, session.end, arrival)
                if watermark is not None and session.end <= watermark:
                    self._fire(session, ON_TIME, None)
                    session.open = False
            if not session.open:
                final = session.end + self.lateness
                self._tick(session, LATE, final, arrival)
                if session.pending and watermark is not None and final <= watermark:
                    self._fire(session, FINAL, None)
                if not session.pending:
                    self._waiting.discard(session)

    def _tick(self, session: _Session, phase: int, until: int, now: int) -> None:
        if not session.pending:
            return
        # What is pending came after the last tick, so the newest fragment's tick is the next.
        newest = self.fragments[session.newest]
        early = phase == EARLY
        at = newest.early_at if early else newest.late_at
        watermark = newest.early_watermark if early else newest.late_watermark
        if at is not None and at <= now and (watermark is None or watermark < until):
            self._fire(session, phase, at)

    def _join(self, index: int, watermark: int | None) -> _Session:
        fragment = self.fragments[index]
        session = _Session(fragment.start, fragment.end, [index], index)
        met = self._meeting(fragment)
        for other in self._sessions[met]:
            session.absorb(other)
            self._waiting.discard(other)
        self._sessions[met] = [session]
        session.open = watermark is None or watermark < session.end
        self._waiting.add(session)
        firing = self.trigger.early if session.open else self.trigger.late
        if firing.full(len(session.pending)):
            self._fire(session, EARLY if session.open else LATE, fragment.arrival)
        return session

    def _meeting(self, fragment: Fragment) -> slice:
        """Which sessions overlap or touch, or where they would be; sessions are disjoint, so their
        ends are in order too."""
        first = bisect_left(self._sessions, fragment.start, key=attrgetter("end"))
        beyond = bisect_right(self._sessions, fragment.end, key=attrgetter("start"))
        return slice(first, beyond)

    def _arrived(self, session: _Session, arrival: int, reached: int | None) -> None:
        if not session.pending:
            return
        if not session.open and self.trigger.late.by_arrival:
            self._fire(session, LATE, arrival)
        closes = reached is not None and session.end <= reached
        if session.open and not closes and self.trigger.early.by_arrival:
            self._fire(session, EARLY, arrival)

    def _fire(self, session: _Session, phase: int, fired: int | None) -> None:
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
        session.published, session.pending = [firing], []
        self.firings.append(firing)
