"""Kafka client configuration, and explanations of why brokers reject a client.

A rejected client receives the reason in its error callback within milliseconds, while its requests
only time out. Error messages therefore contain the errors that the callback received.
"""

import re
import socket
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from confluent_kafka import KafkaError, KafkaException

from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.secret import Secret, check_mode
from tidemark.base.tls import uses_tls

Properties = Mapping[str, str | Secret]
"""Properties of a client, with librdkafka's names."""

TIMEOUT_SECONDS = 10.0
"""Seconds within which brokers must answer a request."""

RETRIABLE_REJECTION_SECONDS = 60.0
"""Seconds for which the rejection of a previously accepted client counts as retriable. Brokers that
have just started may not know their users yet."""

_SECRET = re.compile(r"password|passphrase|secret|key\.pem$|oauthbearer\.config$")
_PRIVATE = ("ssl.key.location", "ssl.keystore.location")
_UNTRUSTED_CLIENT = re.compile(r"alert (bad certificate|certificate required|unknown ca)")
_COUNTS = re.compile(r" \(after .*?\)$")
_WHERE = "in the `client` properties"
_T = TypeVar("_T")


def check_secrets(client: Properties, owner: str) -> None:
    """Refuse properties that contain a secret in plain text.

    Args:
        owner: the object that has the properties, for the error message.
    """
    for name, value in client.items():
        if _SECRET.search(name) and not isinstance(value, Secret):
            raise DefinitionError(
                f"{owner} has the value of {name} in its `client` in plain text. Specify where the "
                f'value is stored, as "{name}": secret("env:NAME") or secret("file:PATH"), with '
                "`from tidemark import secret`."
            )


def client_properties(servers: str, client: Properties) -> dict[str, Any]:
    """Return the properties of a client, with the values of its secrets. The log output of the
    client is off, because its errors are raised.
    """
    properties: dict[str, Any] = {
        "bootstrap.servers": servers,
        "log_level": 0,
        "error_cb": lambda _: None,
        # The default of ten seconds would delay the reconnect after brokers come back.
        "reconnect.backoff.max.ms": 1000,
    }
    for name, value in client.items():
        if name.endswith(".location") and isinstance(value, str):
            _check_file(name, Path(value))
        if isinstance(value, Secret):
            properties[name] = value.reveal()
        else:
            properties[name] = value
    return properties


class Brokers:
    """The brokers of a cluster, with the errors that clients have received from them.

    Args:
        servers: `host:port`, several separated by commas.
    """

    def __init__(self, servers: str, client: Properties) -> None:
        self.servers = servers
        self._client = client
        self._errors: list[KafkaError] = []
        self._was_accepted = False
        self._rejected_at: float | None = None

    def connect_client(
        self,
        kind: Callable[[dict[str, Any]], _T],
        defaults: Properties | None = None,
        **overrides: object,
    ) -> _T:
        """Create a client of this kind.

        Args:
            defaults: defaults, which the configured properties override.
            overrides: properties that override the configured ones, with `_` for `.`.
        """
        properties = client_properties(self.servers, self._client) | {"error_cb": self.record_error}
        properties |= {name.replace("_", "."): value for name, value in overrides.items()}
        try:
            return kind({**(defaults or {}), **properties})
        except KafkaException as error:
            reason = _describe_error(error)
            for value in (v.reveal() for v in self._client.values() if isinstance(v, Secret)):
                reason = reason.replace(value, "***")
            raise DefinitionError(
                f"Can't create the Kafka client for {self.servers}: {reason}. Correct the `client` "
                "properties."
            ) from None

    def forget_errors(self) -> None:
        """Forget the errors received so far."""
        self._errors.clear()

    def record_error(self, error: KafkaError) -> None:
        """Record an error that a client received."""
        self._errors.append(error)

    def record_response(self) -> None:
        """Record that the brokers accepted this client and answered its request."""
        self._was_accepted = True
        self._rejected_at = None

    def explain_rejection(self) -> DataError | None:
        """Return why the brokers reject this client, or None if no received error explains it.

        The error is retriable if the brokers had accepted the client before and the rejection is
        recent (`RETRIABLE_REJECTION_SECONDS`).
        """
        messages = (
            self._known_rejection(broker_error.code(), broker_error.str())
            for broker_error in self._errors
        )
        rejected = (
            next((message for message in messages if message), None) or self._protocol_mismatch()
        )
        if rejected is None:
            return None
        return self._read_error(rejected, retriable=self._is_retriable())

    def unreachable_error(self, error: Exception) -> DataError:
        """Return the error for a failed request, with the best known cause: why the brokers reject
        this client, else the last error that a client received, else `error`."""
        if refused := self.explain_rejection():
            return refused
        plain = [c.str() for c in self._errors if c.code() != KafkaError._ALL_BROKERS_DOWN]
        return unreachable_error(self.servers, KafkaException(plain[-1]) if plain else error)

    def forbidden_error(self, topic: str) -> DataError:
        """Return the error for a topic that this client may not read. Brokers report a topic that
        does not exist in the same way."""
        return self._read_error(
            f"topic '{topic}' does not exist, or {self.user_name} may not read it. Create the "
            "topic, allow that user READ on it (kafka-acls --add --operation Read --topic), or "
            "correct the connector's `topics`"
        )

    def _known_rejection(self, code: int, reason: str) -> str | None:
        message = re.sub(r"^.*?/\S+: ", "", _COUNTS.sub("", reason))
        if code == KafkaError._AUTHENTICATION and "invalid credentials" in reason:
            return (
                f"the broker rejects {self.user_name}. Correct sasl.username or sasl.password "
                f"{_WHERE}, or create that user"
            )
        if code == KafkaError._AUTHENTICATION:
            return f"{message}. Correct sasl.mechanism {_WHERE}"
        if code == KafkaError._SSL and "certificate verify failed" in reason:
            trusted = self._client.get("ssl.ca.location", "the system's authorities")
            return (
                f"the broker's certificate has expired, is for another host, or {trusted} can't "
                f"verify it. In the last case, set ssl.ca.location {_WHERE} to the certificate "
                "file of the authority that signed it"
            )
        if _UNTRUSTED_CLIENT.search(reason):
            return (
                "the broker requires a client certificate, and this client has none that the "
                f"broker trusts. Set ssl.certificate.location and ssl.key.location {_WHERE} to a "
                "certificate from an authority that the broker trusts"
            )
        if "PLAINTEXT broker listener" in reason:
            if not speaks_kafka(*self._first_broker):
                # A proxy in front of brokers that are down also accepts connections and closes
                # them.
                return None
            return (
                f"the broker does not use TLS, but security.protocol is {self._security_protocol}. "
                "Set it to "
                f"{self._security_protocol.replace('SSL', 'PLAINTEXT').removeprefix('_')} "
                f"{_WHERE}, or correct the port"
            )
        if code == KafkaError._SSL:
            return f"{message}. Correct the properties ssl.* {_WHERE}"
        return None

    def _protocol_mismatch(self) -> str | None:
        """Return a message if the brokers require another `security.protocol`; else None.

        Such brokers close connections without an error.
        """
        if {broker_error.code() for broker_error in self._errors} != {KafkaError._ALL_BROKERS_DOWN}:
            return None
        if not uses_tls(*self._first_broker):
            return None
        if "SSL" not in self._security_protocol:
            return (
                f"the broker requires TLS, but security.protocol is {self._security_protocol}. Set "
                f"it to SSL or SASL_SSL {_WHERE}"
            )
        if self._security_protocol == "SSL":
            return (
                "the broker closes connections without a user. Set security.protocol to SASL_SSL, "
                f"and sasl.mechanism, sasl.username and sasl.password, {_WHERE}"
            )
        return None

    @property
    def _first_broker(self) -> tuple[str, int]:
        """The host and port of the first broker; the default port is 9092."""
        address = urlsplit(f"//{self.servers.partition(',')[0].strip()}")
        return address.hostname or "localhost", address.port or 9092

    @property
    def _security_protocol(self) -> str:
        return str(self._client.get("security.protocol", "PLAINTEXT")).upper()

    @property
    def user_name(self) -> str:
        """The client's user, as error messages name it."""
        name = self._client.get("sasl.username")
        if isinstance(name, str):
            return f"the user '{name}'"
        return "this client's user"

    def _is_retriable(self) -> bool:
        """Return whether the current rejection may be temporary."""
        current_time = time.monotonic()
        if self._rejected_at is None:
            self._rejected_at = current_time
        return self._was_accepted and current_time - self._rejected_at < RETRIABLE_REJECTION_SECONDS

    def _read_error(self, message: str, *, retriable: bool = False) -> DataError:
        return DataError(f"Kafka at {self.servers} can't be read: {message}.", retriable=retriable)


def unreachable_error(servers: str, error: Exception) -> DataError:
    """Return the retriable error for brokers that can't be reached."""
    return DataError(
        f"Kafka at {servers} can't be read: {_describe_error(error)}. Start it (`tidemark dev "
        "kafka up` starts one for development), or correct kafka_servers (TIDEMARK_KAFKA_SERVERS).",
        retriable=True,
    )


def _describe_error(error: Exception) -> str:
    cause: object = error.args[0] if error.args else "no answer"
    text = cause.str() if isinstance(cause, KafkaError) else str(cause)
    # The message ends with a count and a duration, which differ each time.
    return _COUNTS.sub("", text).rstrip(".")


def _check_file(name: str, file: Path) -> None:
    if name in _PRIVATE:
        check_mode(file)
    elif not file.exists() and str(file) != "probe":
        raise DefinitionError(
            f"{name} {_WHERE} is '{file}', but there is no such file: create it, or correct the "
            "path."
        )


_PROBE_SECONDS = 3.0
"""Seconds within which the port must answer."""

_API_REQUEST = 7
_API_VERSIONS = struct.pack(">hhih", 18, 0, _API_REQUEST, -1)
"""An ApiVersions request without a client ID, which a Kafka broker answers before anything else."""


def speaks_kafka(host: str, port: int, deadline: float = _PROBE_SECONDS) -> bool:
    """Return whether the port answers an ApiVersions request within `deadline` seconds."""
    with suppress(OSError), socket.create_connection((host, port), timeout=deadline) as connection:
        connection.settimeout(deadline)
        connection.sendall(struct.pack(">i", len(_API_VERSIONS)) + _API_VERSIONS)
        head = connection.recv(8, socket.MSG_WAITALL)
        return len(head) == 8 and struct.unpack(">ii", head)[1] == _API_REQUEST
    return False
