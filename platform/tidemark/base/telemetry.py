"""Traces: what was done with an arrival, as spans of OpenTelemetry, from its ingest to its topics.

An arrival has one trace, whoever works on it: its id is made of where the arrival is, so ingest,
runs and outboxes, which are processes that know nothing of each other, tell of the same trace
without handing anything on. A span is told when its work is done.

Nothing is sent, and nothing of OpenTelemetry imported, unless the environment names a receiver, by
OpenTelemetry's own variables: `OTEL_EXPORTER_OTLP_ENDPOINT`, or that of traces alone.
"""

import os
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

RECEIVERS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""The variables that name a receiver."""

MOST = 100
"""Arrivals of one piece of work that are told of, the newest."""

Facts = Mapping[str, str | int | float | bool]

_root = ContextVar[tuple[int, int] | None]("root", default=None)


@dataclass(frozen=True)
class Arrived:
    """An arrival, as whoever works on it knows it.

    Args:
        place: the database that has it.
        at: its processing time, in microseconds.
    """

    place: str
    source: str
    number: int
    at: int

    @property
    def ids(self) -> tuple[int, int]:
        """Of its trace, and of the span with which that begins."""
        told = "\n".join((self.place, self.source, str(self.number), str(self.at)))
        made = sha256(told.encode()).digest()
        return int.from_bytes(made[:16]), int.from_bytes(made[16:24])


@dataclass(frozen=True)
class Span:
    """A piece of work; from `start` to `end`, in microseconds."""

    name: str
    start: int
    end: int
    facts: Facts = field(default_factory=dict[str, str | int | float | bool])
    parts: Sequence["Span"] = ()


class Clock:
    """Notes when the steps of a piece of work have ended."""

    def __init__(self) -> None:
        self._begun = self._last = _now()
        self._parts: list[Span] = []

    def after(self, step: str) -> None:
        """A step has ended, which began where the one before had."""
        self._parts.append(Span(step, self._last, _now()))
        self._last = self._parts[-1].end

    def span(self, name: str, **facts: str | int | float | bool) -> Span:
        """The work as far as its steps have ended."""
        return Span(name, self._begun, self._last, facts, tuple(self._parts))


def on() -> bool:
    """Whether somebody receives traces."""
    off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return not off and any(os.environ.get(name) for name in RECEIVERS)


def tell(arrivals: Sequence[Arrived], span: Span, *, begins: bool = False) -> None:
    """Tell of work that was done for some arrivals, in the trace of each; of many, of the newest.

    Args:
        begins: whether their traces begin with it.
    """
    if not on():
        return
    tracer = _provider().get_tracer("tidemark", version("tidemark"))
    from opentelemetry import trace
    from opentelemetry.context import Context

    def emit(span: Span, parent: Context, more: Facts) -> None:
        begun = tracer.start_span(
            span.name,
            context=parent,
            start_time=span.start * 1000,
            attributes={f"tidemark.{name}": fact for name, fact in {**more, **span.facts}.items()},
        )
        within = trace.set_span_in_context(begun)
        for part in span.parts:
            emit(part, within, {})
        begun.end(end_time=span.end * 1000)

    for one in arrivals[-MOST:]:
        trace_id, span_id = one.ids
        own = {"source": one.source, "arrival": one.number}
        if begins:
            token = _root.set((trace_id, span_id))
            emit(Span(span.name, span.start, span.end, span.facts), Context(), own)
            _root.reset(token)
        above = trace.SpanContext(
            trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(0x01)
        )
        parent = trace.set_span_in_context(trace.NonRecordingSpan(above), Context())
        for part in span.parts if begins else (span,):
            emit(part, parent, {} if begins else own)


def flush() -> None:
    """Send what was told, and wait until it is sent."""
    if on():
        _provider().force_flush()


@cache
def _provider() -> "TracerProvider":
    """What sends in the background."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class Ids(RandomIdGenerator):
        """The ids of an arrival for the span with which its trace begins, others by chance."""

        def generate_trace_id(self) -> int:
            given = _root.get()
            return super().generate_trace_id() if given is None else given[0]

        def generate_span_id(self) -> int:
            given = _root.get()
            return super().generate_span_id() if given is None else given[1]

    own = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "tidemark"}
    provider = TracerProvider(resource=Resource.create(own), id_generator=Ids())
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _now() -> int:
    return time.time_ns() // 1000
