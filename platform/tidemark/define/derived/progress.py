"""Follow how far the bases of a derived source have come, arrival by arrival.

The *effective watermark* of a base equals the base's own watermark, unless the base is idle. A base
is *idle* while its newest arrival is a heartbeat, and the base has been silent for `idle` of the
derived source or longer. The heartbeat of an idle base raises the effective watermark of the base:

| other bases that have not ended | it is raised to |
| --- | --- |
| some are not idle | the earliest effective watermark of those that are not idle |
| all are idle | the latest effective watermark of all |

It never falls below that value again. Bases that have ended are left out, because no event of them
is still expected.

If all bases are silent, the derived source is silent too, and its arrivals are heartbeats for the
derived sources that read it.
"""

from collections.abc import Iterable

from tidemark.base.instants import INFINITY, earliest_watermark, latest_watermark
from tidemark.define.derived.derived_source import DerivedSource


class Progress:
    """How far the bases of a derived source have come, after some of their arrivals.

    All times are in microseconds.
    """

    def __init__(self, source: DerivedSource) -> None:
        self._source = source
        self.reached: dict[str, int | None] = {base.name: None for base in source.base_sources}
        """The effective watermark of each base, by name."""
        self._silent_since: dict[str, int | None] = {}
        self._idle = set[str]()

    def resume_after(
        self, base: str, reached: int | None, clock: int, silent_since: int | None
    ) -> None:
        """Continue after an arrival of a base that an earlier step has taken.

        Args:
            reached: the effective watermark of the base after the arrival.
            clock: the processing time of the arrival.
            silent_since: for a heartbeat, the time since which the base has been silent; None for
                every other arrival.
        """
        self.reached[base] = reached
        self._silent_since[base] = silent_since
        limit = self._source.idle
        if limit is not None and silent_since is not None and clock - silent_since >= limit:
            self._idle.add(base)
        else:
            self._idle.discard(base)

    def take_arrival(
        self, base: str, watermark: int | None, clock: int, silent_since: int | None
    ) -> int | None:
        """Take the next arrival of a base.

        Return the effective watermark to which the arrival raises its base; None if it does not.

        Args:
            watermark: the base's own watermark after the arrival.
            clock, silent_since: as for `resume_after`.
        """
        self.resume_after(
            base, latest_watermark([self.reached[base], watermark]), clock, silent_since
        )
        if base not in self._idle:
            return None
        raised = self._watermark_without(base)
        own_watermark = self.reached[base]
        if raised is None or (own_watermark is not None and raised <= own_watermark):
            return None
        self.reached[base] = raised
        return raised

    @property
    def derived_watermark(self) -> int | None:
        """The watermark of the derived source; `INFINITY` if all bases have ended."""
        return self._source.watermark_of(list(self.reached.values()))

    @property
    def silent_since(self) -> int | None:
        """The time since which all bases that have not ended are silent; None if one is not."""
        times = [self._silent_since.get(base) for base in self._open_bases()]
        if None in times:
            return None
        return latest_watermark(times)

    @property
    def holding_bases(self) -> tuple[str, ...]:
        """The bases that hold back the watermark of the derived source. Empty if all have ended."""
        marks = self._source.marks_of(list(self.reached.values()))
        lowest = earliest_watermark(marks)
        if lowest == INFINITY:
            return ()
        bases = zip(self.reached, marks, strict=True)
        return tuple(base for base, mark in bases if mark == lowest)

    @property
    def idle_bases(self) -> frozenset[str]:
        """The bases that are idle."""
        return frozenset(self._idle)

    def _watermark_without(self, base: str) -> int | None:
        """Return the watermark up to which the bases other than an idle one have come."""
        other_bases = [open_base for open_base in self._open_bases() if open_base != base]
        active_bases = [active for active in other_bases if active not in self._idle]
        if active_bases:
            return earliest_watermark([self.reached[active] for active in active_bases])
        return latest_watermark([self.reached[idle] for idle in other_bases])

    def _open_bases(self) -> Iterable[str]:
        """Return the bases that have not ended."""
        return [base for base, mark in self.reached.items() if mark != INFINITY]
