"""Trace arrivals with OpenTelemetry, from their ingest to their Kafka topics.

Each arrival has one trace. The id of the trace is derived from the arrival's database, source,
number and processing time. Ingest, runs and sinks, which are separate processes, can thus add spans
to the same trace without passing its id to each other. A span is reported when its work is done.

Nothing is sent, and OpenTelemetry is not imported, unless one of OpenTelemetry's own variables
names a receiver: `OTEL_EXPORTER_OTLP_ENDPOINT`, or the one for traces only.
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
"""The environment variables that name a receiver."""

MAX_TRACED_ARRIVALS = 100
"""Maximum number of arrivals to whose traces a piece of work is added; the newest are chosen."""

_Facts = Mapping[str, str | int | float | bool]

_root = ContextVar[tuple[int, int] | None]("root", default=None)


@dataclass(frozen=True)
class TracedArrival:
    """An arrival, identified by the values from which the ids of its trace are derived.

    Args:
        database: the database that contains the arrival.
        number: the number of the arrival in its source.
        arrived_at: the processing time of the arrival, in microseconds.
    """

    database: str
    source: str
    number: int
    arrived_at: int

    @property
    def trace_ids(self) -> tuple[int, int]:
        """The id of the arrival's trace, and the id of the root span of that trace."""
        identity = "\n".join((self.database, self.source, str(self.number), str(self.arrived_at)))
        digest = sha256(identity.encode()).digest()
        return int.from_bytes(digest[:16]), int.from_bytes(digest[16:24])


@dataclass(frozen=True)
class Span:
    """A piece of work from `start` to `end`, in microseconds since 1970.

    Args:
        facts: the attributes of the span; the prefix `tidemark.` is added to their names.
        parts: the steps of the work, which are child spans.
    """

    name: str
    start: int
    end: int
    facts: _Facts = field(default_factory=dict[str, str | int | float | bool])
    parts: Sequence["Span"] = ()


class Clock:
    """A clock that records the end of each step of a piece of work."""

    def __init__(self) -> None:
        self._begun = self._last = _current_micros()
        self._parts: list[Span] = []

    def record_step(self, step: str) -> None:
        """Record the end of a step, which began when the previous one ended."""
        self._parts.append(Span(step, self._last, _current_micros()))
        self._last = self._parts[-1].end

    def create_span(self, name: str, **facts: str | int | float | bool) -> Span:
        """Return the span of the work up to the end of its last step, with a part for each step."""
        return Span(name, self._begun, self._last, facts, tuple(self._parts))


def is_enabled() -> bool:
    off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return not off and any(os.environ.get(name) for name in RECEIVERS)


def report_work(arrivals: Sequence[TracedArrival], span: Span, *, begins: bool = False) -> None:
    """Report work on some arrivals: add its span to the trace of each arrival.

    Only the traces of the newest `MAX_TRACED_ARRIVALS` arrivals get the span.

    Args:
        arrivals: the arrivals, the newest last.
        begins: true if the traces begin with this work. The span then becomes the root span of each
            trace, and its parts follow as children of the root span.
    """
    if not is_enabled():
        return
    tracer = _span_provider().get_tracer("tidemark", version("tidemark"))
    from opentelemetry import trace
    from opentelemetry.context import Context

    def emit_span(span: Span, parent: Context, more: _Facts) -> None:
        begun = tracer.start_span(
            span.name,
            context=parent,
            start_time=span.start * 1000,
            attributes={f"tidemark.{name}": fact for name, fact in {**more, **span.facts}.items()},
        )
        within = trace.set_span_in_context(begun)
        for part in span.parts:
            emit_span(part, within, {})
        begun.end(end_time=span.end * 1000)

    for arrival in arrivals[-MAX_TRACED_ARRIVALS:]:
        trace_id, span_id = arrival.trace_ids
        arrival_facts = {"source": arrival.source, "arrival": arrival.number}
        if begins:
            token = _root.set((trace_id, span_id))
            emit_span(Span(span.name, span.start, span.end, span.facts), Context(), arrival_facts)
            _root.reset(token)
        above = trace.SpanContext(
            trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(0x01)
        )
        parent = trace.set_span_in_context(trace.NonRecordingSpan(above), Context())
        for part in span.parts if begins else (span,):
            emit_span(part, parent, {} if begins else arrival_facts)


def flush_spans() -> None:
    """Send all reported spans, and wait until they are sent."""
    if is_enabled():
        _span_provider().force_flush()


@cache
def _span_provider() -> "TracerProvider":
    """Return the provider that sends spans in the background."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class Ids(RandomIdGenerator):
        """A generator of ids: a root span gets the ids of its arrival, other spans random ids."""

        def generate_trace_id(self) -> int:
            root_ids = _root.get()
            if root_ids is None:
                return super().generate_trace_id()
            return root_ids[0]

        def generate_span_id(self) -> int:
            root_ids = _root.get()
            if root_ids is None:
                return super().generate_span_id()
            return root_ids[1]

    attributes = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "tidemark"}
    provider = TracerProvider(resource=Resource.create(attributes), id_generator=Ids())
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _current_micros() -> int:
    return time.time_ns() // 1000
