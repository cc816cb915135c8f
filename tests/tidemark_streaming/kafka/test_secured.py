"""Brokers that require TLS and SCRAM, and the errors if a client does not meet this."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._resource import ResourceType

from helpers.data.support import PER_MINUTE, READINGS, some_arrivals
from helpers.data.support import ingest as ingest_rows
from helpers.kafka.certificates import Authority
from helpers.kafka.rebuilt import records
from helpers.kafka.secured import Secured, secured
from helpers.kafka.topics import CLICKS, Topics, clicks
from helpers.processes.following import Following
from helpers.suite.nightly import mostly_nightly
from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.secret import Secret, secret
from tidemark.run.runner import incremental
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.findings import polls
from tidemark_streaming.findings.polls import Backlogs
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.kafka import KafkaConnector, KafkaSink, client
from tidemark_streaming.kafka.client import Brokers
from tidemark_streaming.sink import SinkWriter
from tidemark_streaming.sink.position import Position
from tidemark_streaming.sink.record import Record
from tidemark_streaming.sink.transactional_topic import TransactionalTopic

# Starts brokers with TLS and SCRAM and waits for rejections.
pytestmark = pytest.mark.slow

Right = tuple[ResourceType, str, AclOperation]
PASSWORD = "the-right-password-of-ann"
WRONG = "some-wrong-password-of-ann"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Yield a broker with the user `ann`, who may read the topic `open` and describe `seen`."""
    with secured(tmp_path_factory.mktemp("secured")) as made:
        made.user("ann", PASSWORD)
        for topic in ("open", "seen", "shut"):
            made.admin.create(name=topic)
            made.admin.send(topic, clicks(1, 2))
        made.allow("ann", "open")
        made.allow("ann", "seen", AclOperation.DESCRIBE)
        yield made


RIGHTS = {
    "write": (ResourceType.TOPIC, "{}", AclOperation.WRITE),
    "read of positions": (ResourceType.TOPIC, "{}_positions", AclOperation.READ),
    "write of positions": (ResourceType.TOPIC, "{}_positions", AclOperation.WRITE),
    "transactions": (ResourceType.TRANSACTIONAL_ID, "tidemark per_minute {}", AclOperation.WRITE),
}
"""The rights that a sink needs, by its topic's name, as in docs/security.md."""
CREATE = {name: (ResourceType.TOPIC, name, AclOperation.CREATE) for name in ("{}", "{}_positions")}


def writer(broker: Secured, topic: str, rights: Mapping[str, Right]) -> KafkaSink:
    """Return a sink for a user with the name of the topic and these rights."""
    broker.user(topic, PASSWORD)
    for kind, name, operation in rights.values():
        broker.allow(topic, name.format(topic), operation, kind)
    client = broker.client(topic, **{"sasl.password": secret("env:ANN")})
    return KafkaSink(topic, broker.servers, client=client)


@pytest.fixture(autouse=True)
def passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANN", PASSWORD)
    monkeypatch.setenv("NOT_ANN", WRONG)


def connector(broker: Secured, topic: str = "open", password: str = "env:ANN") -> KafkaConnector:
    """Return a connector over TLS and SCRAM for the user `ann`."""
    client = broker.client("ann", **{"sasl.password": secret(password)})
    return KafkaConnector(CLICKS, [topic], servers=broker.servers, client=client)


def refused(look: Callable[[], object], within: float = 25) -> str:
    """Return the error message of a poll: one line, within seconds, without secrets."""
    begun = time.monotonic()
    with pytest.raises((DataError, DefinitionError)) as raised:
        look()
    assert time.monotonic() - begun < within
    sentence = str(raised.value)
    assert "\n" not in sentence
    assert PASSWORD not in sentence
    assert WRONG not in sentence
    return sentence


def test_records_are_ingested_over_tls_and_scram(warehouse: Warehouse, broker: Secured) -> None:
    (commit,) = ingest(warehouse, connector(broker))
    assert commit.arrivals[0].rows == 2


def test_a_password_can_be_read_from_a_private_file(broker: Secured, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    file.chmod(0o600)
    (chunk,) = connector(broker, password=f"file:{file}").list_pending([])
    assert chunk.rows == 2
    file.chmod(0o640)
    sentence = refused(lambda: connector(broker, password=f"file:{file}").list_pending([]))
    assert f"'{file}' has the mode 0640" in sentence


@pytest.mark.parametrize(
    ("change", "sentence"),
    mostly_nightly(
        [
            (
                {"sasl.password": secret("env:NOT_ANN")},
                "rejects the user 'ann'. Correct sasl.",
            ),
            ({"sasl.username": "bob"}, "the broker rejects the user 'bob'. Correct sasl.username"),
            (
                {"sasl.mechanism": "SCRAM-SHA-256"},
                "supported mechanisms: SCRAM-SHA-512. Correct sasl.",
            ),
            (
                {"ssl.ca.location": "{other}"},
                "for another host, or {other} can't verify it. In the",
            ),
            ({"ssl.ca.location": None}, "or the system's authorities can't verify it. In the"),
            ({"ssl.ca.location": "/no/ca.pem"}, "is '/no/ca.pem', but there is no such file"),
            (
                {"security.protocol": "PLAINTEXT"},
                "requires TLS, but security.protocol is PLAINTEXT.",
            ),
            (
                {"security.protocol": "SASL_PLAINTEXT"},
                "requires TLS, but security.protocol is SASL_",
            ),
            (
                {"security.protocol": "SSL"},
                "connections without a user. Set security.protocol to SASL",
            ),
            (
                {"security.protocol": "TLS"},
                'Invalid value "TLS" for configuration property "security.',
            ),
            (
                {"sasl.password": None},
                "sasl.username and sasl.password must be set. Correct the `client`",
            ),
            ({"sasl.password": secret("env:NOBODY")}, "set the environment variable NOBODY"),
            (
                {"sasl.mechanism": secret("env:ANN")},
                "Unsupported SASL mechanism: ***. Correct the `client`",
            ),
        ],
        5,
    ),
)
def test_wrong_client_settings_are_reported_within_seconds(
    broker: Secured, tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    other = str(Authority(tmp_path, "other").certificate)
    told = {k: v.format(other=other) if isinstance(v, str) else v for k, v in change.items()}
    client = broker.client("ann", **{"sasl.password": secret("env:ANN"), **told})
    client = {name: value for name, value in client.items() if value is not None}
    wrong = KafkaConnector(CLICKS, ["open"], servers=broker.servers, client=client)
    assert sentence.format(other=other) in refused(lambda: wrong.list_pending([]))


def test_a_broker_without_tls_is_reported(broker: Secured) -> None:
    wrong = KafkaConnector(
        CLICKS, ["open"], servers=broker.admin.servers, client=connector(broker).client
    )
    told = refused(lambda: wrong.list_pending([]))
    assert "does not use TLS, but security.protocol is SASL_SSL. Set it to SASL_PLAINTEXT" in told


def test_panes_are_published_over_tls_and_scram(warehouse: Warehouse, broker: Secured) -> None:
    """Uses only these rights, plus the right to create topics if the topic does not exist."""
    ingest_rows(warehouse, READINGS, some_arrivals())
    incremental(warehouse, PER_MINUTE)
    windows = warehouse.load_rows(PER_MINUTE.published_table).num_rows
    for topic, rights in (("panes", RIGHTS), ("panes_made", {**RIGHTS, **CREATE})):
        if rights is RIGHTS:
            for name in (topic, f"{topic}_positions"):
                broker.admin.create(name=name)
        to = writer(broker, topic, rights)
        asset = replace(PER_MINUTE, accumulation="retracting", sink=to)
        assert SinkWriter(warehouse, asset).publish_changes().transactions == 1
        # Another process finds the position in the topic.
        assert SinkWriter(warehouse, asset).publish_changes().transactions == 0
        sent = records(broker.admin.servers, topic)
        assert len([value for _, _, value in sent if "reset" not in value]) == windows > 0


@pytest.mark.parametrize(
    ("lacks", "sentence"),
    mostly_nightly(
        [
            ("write", "topic '{0}' does not exist, or the user '{0}' may not see it; and that"),
            (
                "read of positions",
                "the user '{0}' may not read from the topic '{0}_positions'. Allow",
            ),
            ("write of positions", "the user '{0}' may not write to '{0}' or to '{0}_positions'."),
            (
                "transactions",
                "not write with the transactional id 'tidemark per_minute {0}'. Allow",
            ),
        ]
    ),
)
def test_a_missing_right_of_a_sink_is_reported(broker: Secured, lacks: str, sentence: str) -> None:
    topic = f"lacks_{lacks.replace(' ', '_')}"
    for name in (topic, f"{topic}_positions"):
        broker.admin.create(name=name)
    rights = {name: right for name, right in RIGHTS.items() if name != lacks}
    channel = TransactionalTopic(writer(broker, topic, rights), "per_minute", "here")
    # A position exists that must be read.
    position = Position("table", 1, "id", 1, 1, 3, None, 1, "here", "")
    broker.admin.send(f"{topic}_positions", [position.to_json()], key=b"per_minute")

    def emit() -> None:
        channel.read_position()
        channel.open_producer()
        channel.send_transaction([Record(b"k", b"v", 0)], lambda: position)

    told = refused(emit)
    assert sentence.format(topic) in told
    assert told.startswith(f"Kafka topic '{topic}' at {broker.servers} can't be written: ")


def by_certificate(broker: Secured, *files: Path, **more: Secret) -> KafkaConnector:
    """Return a connector over mutual TLS."""
    names = ("ssl.certificate.location", "ssl.key.location")
    trust = {"security.protocol": "SSL", "ssl.ca.location": str(broker.authority.certificate)}
    client = {**trust, **dict(zip(names, map(str, files), strict=False)), **more}
    return KafkaConnector(CLICKS, ["open"], servers=broker.mutual, client=client)


def test_a_client_can_authenticate_by_its_certificate(broker: Secured, tmp_path: Path) -> None:
    bob = broker.authority.client("bob")
    told = refused(lambda: by_certificate(broker, *bob).list_pending([]))
    assert "topic 'open' does not exist, or this client's user may not read it" in told
    broker.allow("CN=bob", "open")
    (chunk,) = by_certificate(broker, *bob).list_pending([])
    assert chunk.rows >= 2
    locked = broker.authority.client("bob", PASSWORD)
    (chunk,) = by_certificate(
        broker, *locked, **{"ssl.key.password": secret("env:ANN")}
    ).list_pending([])
    assert chunk.rows >= 2
    for files in ((), Authority(tmp_path, "other").client("bob")):
        told = refused(lambda files=files: by_certificate(broker, *files).list_pending([]))
        assert "requires a client certificate, and this client has none" in told
    bob[1].chmod(0o640)
    told = refused(lambda: by_certificate(broker, *bob).list_pending([]))
    assert f"'{bob[1]}' has the mode 0640" in told


@pytest.mark.parametrize("topic", ["shut", "none"])
def test_an_unauthorized_topic_is_reported(broker: Secured, topic: str) -> None:
    told = refused(lambda: connector(broker, topic).list_pending([]))
    assert f"topic '{topic}' does not exist, or the user 'ann' may not read it" in told


@pytest.mark.parametrize(
    ("topic", "change", "sentence"),
    [
        ("shut", {}, "may not read it"),
        ("open", {"sasl.password": secret("env:NOT_ANN")}, "the broker rejects the user 'ann'"),
        ("open", {"ssl.ca.location": None}, "can't verify it"),
    ],
)
def test_monitoring_reports_a_rejection_and_not_an_outage(
    broker: Secured,
    monkeypatch: pytest.MonkeyPatch,
    topic: str,
    change: dict[str, Any],
    sentence: str,
) -> None:
    # Wait for the result of the first request.
    monkeypatch.setattr(polls, "BROKER_SECONDS", 30.0)
    told = {**connector(broker).client, **change}
    client = {name: value for name, value in told.items() if value is not None}
    wrong = KafkaConnector(CLICKS, [topic], servers=broker.servers, client=client)
    found = Backlogs().get_backlog(wrong, None)
    assert sentence in (found.trouble or "")
    assert found.is_refused
    assert not found.is_silent


def test_a_topic_without_read_permission_is_reported(warehouse: Warehouse, broker: Secured) -> None:
    told = refused(lambda: list(ingest(warehouse, connector(broker, "seen"))), within=30)
    assert "topic 'seen' does not exist, or the user 'ann' may not read it" in told


@pytest.mark.parametrize(
    "name", ["sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.config"]
)
def test_a_password_in_plain_text_is_refused(topics: Topics, name: str) -> None:
    sentence = refused(lambda: topics.connector("clicks", client={name: PASSWORD}))
    assert f"has the value of {name} in its `client` in plain text. Specify where" in sentence


_TALKATIVE = """
import sys
from tidemark import secret
from tidemark_streaming.kafka.client import client_properties
from confluent_kafka.admin import AdminClient
ca, servers, user = sys.argv[1:]
client = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": user, "ssl.ca.location": ca, "sasl.password": secret("env:ANN"),
    "debug": "all", "log_level": "7"}
print(client)
admin = AdminClient(client_properties(servers, client))
print(len(admin.list_topics(timeout=60).topics), "topics")
"""


def test_kafkas_own_log_shows_no_password(broker: Secured) -> None:
    """This holds even at the most detailed log level."""
    arguments = [str(broker.authority.certificate), broker.servers, "ann"]
    done = subprocess.run(
        [sys.executable, "-c", _TALKATIVE, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "sasl.password = [redacted]" in done.stderr
    assert "Authenticated as ann using SCRAM-SHA-512" in done.stderr
    assert "secret('env:ANN')" in done.stdout
    assert PASSWORD not in done.stdout + done.stderr


def test_the_repr_of_a_connector_has_no_password(broker: Secured) -> None:
    shown = repr(connector(broker))
    assert "secret('env:ANN')" in shown
    assert PASSWORD not in shown


def test_a_rejection_after_a_broker_restart_is_retried(
    warehouse: Warehouse, broker: Secured
) -> None:
    following = Following(warehouse, connector(broker))
    following.brings(2)
    # Some brokers load their users late: they are up but know no users.
    broker.forget("ann")
    broker.restart(0)
    while "the broker rejects the user 'ann'" not in (told := following.says()):
        assert "can't be read" in told
    assert told.endswith("Waiting until it is back.")
    following.end()
    broker.user("ann", PASSWORD)
    broker.admin.send("open", clicks(3))
    following.brings(1)
    following.join()


def test_a_rejection_is_retriable_only_briefly_after_an_authentication(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refusal(*, admitted: bool) -> DataError:
        brokers = Brokers("127.0.0.1:1", {"sasl.username": "ann"})
        if admitted:
            brokers.record_response()
        reason = "localhost:1: SASL authentication error: invalid credentials"
        brokers.record_error(KafkaError(KafkaError._AUTHENTICATION, reason))
        found = brokers.explain_rejection()
        assert found is not None
        assert "the broker rejects the user 'ann'" in str(found)
        return found

    assert not refusal(admitted=False).retriable
    assert refusal(admitted=True).retriable
    monkeypatch.setattr(client, "RETRIABLE_REJECTION_SECONDS", 0.0)
    assert not refusal(admitted=True).retriable
