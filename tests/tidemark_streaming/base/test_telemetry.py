"""OpenTelemetry traces as a receiver gets them: real requests, decoded by the protocol."""

import os
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from helpers.data.landing import SOURCE, land_some
from helpers.data.runs import run_all
from helpers.kafka.topics import Topics
from tidemark.base import telemetry
from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port
from tidemark.run.runner import backfill
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.kafka import KafkaSink
from tidemark_streaming.sink import SinkWriter
from watched.transforms import by_hour, by_minute

STEPS = ["count", "compute", "validate", "store", "publish"]


@dataclass
class Receiver:
    """The spans and services sent to a receiver of OTLP over HTTP."""

    spans: list[Span] = field(default_factory=list[Span])
    services: set[str] = field(default_factory=set[str])

    def take(self, path: str, body: bytes) -> None:
        assert path == "/v1/traces"
        for told in ExportTraceServiceRequest.FromString(body).resource_spans:
            named = (a for a in told.resource.attributes if a.key == "service.name")
            self.services |= {a.value.string_value for a in named}
            self.spans += [span for scope in told.scope_spans for span in scope.spans]

    def traces(self) -> Mapping[int, list[Span]]:
        """Return the spans by trace ID, in the order of their starts."""
        found = defaultdict[int, list[Span]](list)
        for span in sorted(self.spans, key=lambda s: s.start_time_unix_nano):
            found[int.from_bytes(span.trace_id)].append(span)
        return found


@pytest.fixture
def sending(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Let a test set the receiver of traces, and shut down the exporter afterwards."""
    for name in (*telemetry.RECEIVERS, "OTEL_SDK_DISABLED", "OTEL_SERVICE_NAME"):
        monkeypatch.delenv(name, raising=False)
    telemetry._span_provider.cache_clear()
    yield monkeypatch
    if telemetry._span_provider.cache_info().currsize:
        telemetry._span_provider().shutdown()
    telemetry._span_provider.cache_clear()


@pytest.fixture
def receiver(sending: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """Yield a running receiver to which traces are exported."""
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            assert self.headers["content-type"] == "application/x-protobuf"
            found.take(self.path, body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Log nothing."""

    with ExitStack() as stack:
        server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stack.callback(server.shutdown)
        address = f"http://127.0.0.1:{server.server_address[1]}"
        sending.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        sending.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        yield found


def value(span: Span, name: str) -> object:
    """Return an attribute of a span."""
    (found,) = [a.value for a in span.attributes if a.key == f"tidemark.{name}"]
    return getattr(found, str(found.WhichOneof("value")))


def within(parent: Span, spans: list[Span]) -> list[Span]:
    """Return the children of a span, and assert that they are in its trace."""
    found = [span for span in spans if span.parent_span_id == parent.span_id]
    for span in found:
        assert span.trace_id == parent.trace_id
        assert span.start_time_unix_nano <= span.end_time_unix_nano
    return found


# Runs a command in its own process.
@pytest.mark.slow
def test_an_arrival_is_one_trace_from_its_ingest_to_its_topic(
    warehouse: Warehouse, engine: Settings, topics: Topics, tmp_path: Path, receiver: Receiver
) -> None:
    # An empty file, the third one, causes no run.
    land_some(tmp_path / SOURCE.name, 4)
    told = {
        "HOME": engine.home,
        "ENGINE_PORT": engine.engine_port,
        "WAREHOUSE": engine.warehouse,
        "DATABASE": warehouse.database,
        "LANDING": tmp_path,
        "DOMAINS": "watched",
    }
    env = {**os.environ, **{f"TIDEMARK_{name}": str(value) for name, value in told.items()}}
    tidemark = str(Path(sys.executable).with_name("tidemark"))
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    # The ingest runs in its own process, which has sent all its spans when it exits.
    done = subprocess.run([tidemark, "ingest", "sensors"], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    topic = KafkaSink(topics.unused(), topics.servers, partitions=1)
    asset = replace(by_minute, accumulation="accumulating", sink=topic)
    first, second = run_all(warehouse, asset, 2)
    (rolled,) = run_all(warehouse, replace(by_hour, base=asset))
    backfill(warehouse, asset)
    published = SinkWriter(warehouse, asset).publish_changes()
    telemetry.flush_spans()

    traces = receiver.traces()
    arrivals = Log(warehouse, SOURCE).traced_arrivals(-1, 3)
    assert list(traces) == [a.trace_ids[0] for a in arrivals]
    assert receiver.services == {"tidemark"}
    for arrival, spans in zip(arrivals, traces.values(), strict=True):
        (root,) = [span for span in spans if not span.parent_span_id]
        assert (root.name, int.from_bytes(root.span_id)) == ("ingest sensors", arrival.trace_ids[1])
        assert (value(root, "source"), value(root, "arrival")) == ("sensors", arrival.number)
        below = {span.name: span for span in within(root, spans)}
        ingested = ["read", "decode", "write"]
        assert list(below) == [*ingested, "run by_minute", "run by_hour", "publish by_minute"]
        assert below["write"].end_time_unix_nano == root.end_time_unix_nano
        facts = first if arrival.number < 2 else second
        for name, ran in (("run by_minute", facts), ("run by_hour", rolled)):
            run = below[name]
            assert (value(run, "run"), value(run, "commit_number")) == (ran.run, ran.commit_number)
            assert run.start_time_unix_nano == ran.started_at * 1000
            assert root.end_time_unix_nano <= run.start_time_unix_nano
            steps = within(run, spans)
            assert [s.name for s in steps] == list(ran.steps)
            assert steps[-1].end_time_unix_nano == run.end_time_unix_nano
        assert list(first.steps) == STEPS
        emit = below["publish by_minute"]
        assert value(emit, "records") == published.records
        assert [s.name for s in within(emit, spans)] == ["send"]


def test_only_the_newest_of_many_arrivals_are_traced(receiver: Receiver) -> None:
    many = [
        telemetry.TracedArrival("here", "s", n, n) for n in range(telemetry.MAX_TRACED_ARRIVALS + 5)
    ]
    telemetry.report_work(many, telemetry.Span("work", 1, 2))
    telemetry.flush_spans()
    assert set(receiver.traces()) == {a.trace_ids[0] for a in many[5:]}
    assert len({a.trace_ids[0] for a in many}) == len(many)
    recreated = replace(many[0], arrived_at=7)
    assert recreated.trace_ids != many[0].trace_ids, "of a log that was made anew"


def test_an_unreachable_receiver_does_not_stop_the_work(
    sending: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, work = [telemetry.TracedArrival("here", "s", 0, 0)], telemetry.Span("work", 1, 2)
    sending.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    sending.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    telemetry.report_work(one, work)
    telemetry.flush_spans()
    assert "Failed to export" in caplog.text


IMPORTED = """
import sys
import tidemark_streaming.ingest.ingest, tidemark_streaming.sink, tidemark.run.runner
from tidemark.base import telemetry
telemetry.report_work([telemetry.TracedArrival("", "s", 0, 0)], telemetry.Span("work", 1, 2))
telemetry.flush_spans()
of_it = ("opentelemetry.sdk", "opentelemetry.exporter", "requests")
print([m for m in sys.modules if m.startswith(of_it)])
"""


@pytest.mark.parametrize("disabled", [False, True])
def test_disabled_telemetry_imports_nothing(disabled: bool) -> None:
    """Nor the HTTP client, which a schema registry also uses."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    if disabled:
        env |= {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://nowhere"}
    command = [sys.executable, "-c", IMPORTED]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
