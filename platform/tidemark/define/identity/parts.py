"""Describe the parts of a definition in plain words, and the effect of changing each of them.

Fingerprints show that two definitions differ; the parts show where. The first commit of a
definition stores its parts, so that Tidemark can report what has changed when the code changes.

| changed part | effect |
| --- | --- |
| the source's columns, the description | none |
| expectations | the next run validates windows against them; nothing is recomputed |
| function, `deduplicate`, event time, | runs continue, and apply the change to new |
| `computed`, `max_future_skew`, lookup tables | arrivals; earlier results stay as they are |
| window, keys, aggregates, lateness, trigger, | runs can't continue with the stored state |
| accumulation | |
| the source's name | the same, because another event log numbers its own arrivals from 0 |
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tidemark.base.instants import format_duration
from tidemark.define.definition import Definition
from tidemark.define.identity.fingerprint import compute_digest, used_lookups
from tidemark.define.rollup import base_transform
from tidemark.define.source import Source, lookup_name


class Effect(StrEnum):
    """The effect of a change. The members are in ascending order of severity."""

    NONE = "none"
    """No results change."""
    FORWARD = "forward"
    """Runs apply the change from the next arrival on."""
    REBUILD = "rebuild"
    """Runs can't continue with the stored state."""


class Part(NamedTuple):
    """A part of a definition, such as its window, by which a change of the definition is found.

    Args:
        text: the part in plain words.
        digest: twelve hexadecimal digits, which differ if the part would behave differently.
    """

    text: str
    digest: str


@dataclass(frozen=True)
class Change:
    """A part in which two definitions differ.

    Args:
        part: the name of the part, as in `aggregate flights`.
        before, after: the part in plain words; None if that definition does not have it.
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


AGGREGATE = "aggregate "
EXPECTATION = "expectation "
SOURCE = "source"
_FORWARD = ("code", "deduplicate", SOURCE)
_BY = " by "


def describe_parts(definition: Definition) -> dict[str, Part]:
    return {
        name: Part(text, compute_digest(value)) for name, text, value in _list_parts(definition)
    }


def compare_parts(earlier: Mapping[str, Part], definition: Definition) -> list[Change]:
    current = describe_parts(definition)
    changes = list[Change]()
    for name in {**current, **earlier}:
        before = earlier.get(name)
        after = current.get(name)
        if before is None or after is None or before.digest != after.digest:
            effect = _change_effect(name, before, after)
            changes.append(Change(name, before and before.text, after and after.text, effect))
    return changes


def combined_effect(changes: list[Change]) -> Effect:
    """Return the most severe effect of some changes; `NONE` if there are none."""
    return max((c.effect for c in changes), key=list(Effect).index, default=Effect.NONE)


def _change_effect(part: str, previous: Part | None, current: Part | None) -> Effect:
    if part.startswith(EXPECTATION):
        return Effect.NONE
    if part == SOURCE and previous and current and _source_name(previous) != _source_name(current):
        return Effect.REBUILD
    if part in _FORWARD:
        return Effect.FORWARD
    return Effect.REBUILD


def _source_name(source: Part) -> str:
    """Return the name of a source from the text of its part, which begins with it."""
    return source.text.partition(_BY)[0]


def _list_parts(definition: Definition) -> Iterator[tuple[str, str, object]]:
    base = base_transform(definition)
    source = definition.source
    yield "window", str(definition.window), definition.window
    yield "keys", ", ".join(definition.keys) or "none", definition.keys
    for name, aggregate in definition.aggregates.items():
        yield f"{AGGREGATE}{name}", str(aggregate), aggregate
    lateness = definition.allowed_lateness
    yield "allowed lateness", format_duration(lateness), lateness
    yield "trigger", str(definition.trigger), definition.trigger
    yield "accumulation", definition.accumulation or "none", definition.accumulation
    yield "deduplicate", str(base.deduplicate or "none"), base.deduplicate
    description, identity = _describe_source(source, used_lookups(definition))
    yield SOURCE, description, identity
    yield "code", f"version {compute_digest(base.function)}", base.function
    for expectation in definition.expectations:
        words = f"{expectation.expected}, {expectation.level}"
        yield f"{EXPECTATION}{expectation.name}", words, expectation


def _describe_source(source: Source, used: list[str]) -> tuple[str, list[object]]:
    """Return a source in plain words, and the parts of it that affect results.

    Args:
        used: the lookup tables that the function takes.
    """
    description = f"{source.name}{_BY}{source.event_time}"
    identity: list[object] = [source.name, source.event_time, used, source.future_skew]
    if used:
        description += f", joined with {', '.join(map(lookup_name, used))}"
    if source.future_skew is not None:
        description += f", dated at most {format_duration(source.future_skew)} after arrival"
    for name, expression in source.computed.items():
        description += f", {name} = {expression}"
    if source.computed:
        identity.append(dict(source.computed))
    return description, identity
