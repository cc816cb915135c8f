"""Find the base that holds back a derived source, from the timelines alone.

The watermark of a join or a union is the least of its bases' watermarks. If one base has no newer
events, the rows of the others wait for it, and nothing else shows why.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.base.instants import INFINITY, parse_duration
from tidemark.define.derived.chain import Chain
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.source import Source

PATIENCE = parse_duration("1 hour")
"""How far the newest event of a base may be behind that of the other bases."""


@dataclass(frozen=True)
class BaseProgress:
    """The end of a base's timeline. Instants are in microseconds, None before the first event."""

    watermark: int | None
    newest_event: int | None


@dataclass(frozen=True)
class HeldBack:
    """A base that holds back a derived source. Instants are in microseconds.

    Args:
        watermark: the watermark of the derived source; None if it has none yet.
        newest_event: the newest event of the base; None if it has no event yet.
        waiting_base: another base, whose rows wait.
        waiting_newest: the newest event of that base.
    """

    base: str
    watermark: int | None
    newest_event: int | None
    waiting_base: str
    waiting_newest: int


def find_slow_base(
    source: DerivedSource, watermark: int | None, bases: Mapping[str, BaseProgress]
) -> HeldBack | None:
    """Return the base that holds back a derived source; None if no base does.

    A base holds the source back if the source's watermark can't advance until the base's does, and
    if the newest event of the base is far behind that of another base (`PATIENCE`). Bases that have
    ended hold nothing back. If the source's watermark is behind those of all bases, the source only
    has arrivals to take.

    Args:
        watermark: the watermark of the derived source.
        bases: the progress of each base, by name.
    """
    look_back = source.derivation.look_back
    for base, back in zip(source.base_sources, look_back, strict=True):
        slow = bases[base.name]
        if not _is_limiting(slow.watermark, back, watermark):
            continue
        others = {name: progress for name, progress in bases.items() if name != base.name}
        other = _newest_base(others)
        if other is None:
            continue
        name, newest = other
        allowed = PATIENCE + _usual_delay(base)
        if slow.newest_event is None or newest - slow.newest_event > allowed:
            return HeldBack(base.name, watermark, slow.newest_event, name, newest)
    return None


def _is_limiting(base: int | None, back: int, watermark: int | None) -> bool:
    """Return whether a derived source can't advance beyond its watermark without a base.

    If the base's watermark is later, the source has arrivals to take. If it is earlier, the base is
    silent and does not count any more (`idle`).
    """
    if base is None or watermark is None:
        return base is watermark
    return base < INFINITY and base - back == watermark


def _newest_base(bases: Mapping[str, BaseProgress]) -> tuple[str, int] | None:
    """Return the base with the newest event, and that event's time; None if no base is live."""
    live = list[tuple[str, int]]()
    for name, progress in bases.items():
        has_ended = progress.watermark is not None and progress.watermark >= INFINITY
        if progress.newest_event is not None and not has_ended:
            live.append((name, progress.newest_event))
    return max(live, key=lambda item: item[1], default=None)


def _usual_delay(base: Source) -> int:
    """Return how far the newest event of a base is usually behind the present, in microseconds.

    The windows of a chain become events only when they can't change any more.
    """
    chain = base.derivation if isinstance(base, DerivedSource) else None
    if not isinstance(chain, Chain) or chain.rows != "final":
        return 0
    return chain.asset.window.max_extent + chain.settling_time
