"""The parts of a definition in plain words, and what a change of each means for an asset's tables.

A fingerprint tells that two definitions differ; the parts tell in what. The first commit that a
definition makes keeps its parts, so that who changes the code can be told what has changed since.

| a change of | means |
| --- | --- |
| the source's columns, the description | nothing |
| expectations | windows are judged by them from the next run on; nothing is counted anew |
| the function, lateness, `unique`, the source's event time, references | runs go on, and count |
| | by it what comes from then on; what was counted before stays as it is |
| window, keys, aggregates, trigger, accumulation | what is stored can't be gone on with |
| the source's name | the same: another log has arrivals of its own, which begin at 0 |
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tidemark.base.instants import describe, duration
from tidemark.define.definition import Definition
from tidemark.define.fingerprint import digest
from tidemark.define.rollup import counting
from tidemark.define.source import reference_name


class Effect(StrEnum):
    """What a change means, from the least to the greatest."""

    NONE = "none"
    """Nothing is counted otherwise."""
    FORWARD = "forward"
    """Runs count by it from the next arrival on."""
    REBUILD = "rebuild"
    """Runs can't go on with what is stored."""


class Part(NamedTuple):
    """A part of a definition.

    Args:
        text: in plain words.
        digest: twelve hexadecimal digits, others where it would do otherwise.
    """

    text: str
    digest: str


@dataclass(frozen=True)
class Change:
    """A part in which two definitions differ.

    Args:
        part: `window`, `keys`, `aggregate n`, …
        before, after: in plain words; None where it is not there.
        effect: what that means.
    """

    part: str
    before: str | None
    after: str | None
    effect: Effect

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.part} added ({self.after})"
        if self.after is None:
            return f"{self.part} removed ({self.before})"
        return f"{self.part} ({self.before} → {self.after})"


AGGREGATE, EXPECTATION, SOURCE = "aggregate ", "expectation ", "source"
_FORWARD = ("code", "allowed lateness", "unique", SOURCE)
_BY = " by "


def parts(transform: Definition) -> dict[str, Part]:
    """The parts of a definition, by their names."""
    return {name: Part(text, digest(value)) for name, text, value in _parts(transform)}


def changed(earlier: Mapping[str, Part], transform: Definition) -> list[Change]:
    """The parts in which a definition differs from an earlier one."""
    now = parts(transform)
    names = dict.fromkeys([*now, *earlier])
    return [
        Change(
            name,
            earlier[name].text if name in earlier else None,
            now[name].text if name in now else None,
            _effect(name, earlier.get(name), now.get(name)),
        )
        for name in names
        if name not in now or name not in earlier or now[name].digest != earlier[name].digest
    ]


def effect(changes: list[Change]) -> Effect:
    """What some changes mean together."""
    return max((c.effect for c in changes), key=list(Effect).index, default=Effect.NONE)


def of_another_log(changes: list[Change]) -> bool:
    """Whether two definitions have arrivals of different logs."""
    return any(c.part == SOURCE and c.effect is Effect.REBUILD for c in changes)


def _effect(part: str, before: Part | None, after: Part | None) -> Effect:
    if part.startswith(EXPECTATION):
        return Effect.NONE
    if part == SOURCE and before and after and _named(before) != _named(after):
        return Effect.REBUILD
    return Effect.FORWARD if part in _FORWARD else Effect.REBUILD


def _named(source: Part) -> str:
    """The name of a source, as the words of its part begin with it."""
    return source.text.partition(_BY)[0]


def _parts(transform: Definition) -> Iterator[tuple[str, str, object]]:
    own, source = counting(transform), transform.source
    yield "window", str(transform.window), transform.window
    yield "keys", ", ".join(transform.keys) or "none", transform.keys
    for name, aggregate in transform.aggregates.items():
        yield f"{AGGREGATE}{name}", str(aggregate), aggregate
    lateness = transform.allowed_lateness
    yield "allowed lateness", describe(lateness), lateness
    yield "trigger", str(transform.trigger), transform.trigger
    yield "accumulation", transform.accumulation or "none", transform.accumulation
    yield "unique", str(own.unique) if own.unique else "none", own.unique
    joined = [r for r in source.references if reference_name(r) in own.references]
    skew = None if source.max_future_skew is None else duration(source.max_future_skew)
    told = f"{source.name}{_BY}{source.event_time}"
    told += f", joined with {', '.join(map(reference_name, joined))}" if joined else ""
    told += "" if skew is None else f", dated at most {describe(skew)} after arrival"
    yield SOURCE, told, [source.name, source.event_time, joined, skew]
    yield "code", f"version {digest(own.function)}", own.function
    for expectation in transform.expectations:
        words = f"{expectation.expected}, {expectation.level}"
        yield f"{EXPECTATION}{expectation.name}", words, expectation
