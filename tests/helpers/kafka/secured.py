"""A real broker with three listeners: TLS and SCRAM, TLS with client certificates, and admin."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from helpers.kafka.certificates import Authority
from helpers.kafka.topics import Topics, until
from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port
from tidemark_streaming.kafka import broker

MECHANISM = "SCRAM-SHA-512"


@dataclass(frozen=True)
class Secured:
    """A broker with three listeners.

    Args:
        servers: the address of the listener with TLS and SCRAM.
        mutual: the address of the listener with TLS and client certificates.
        admin: its topics, through the listener without restrictions.
        authority: the authority that signed its certificate.
        restart: kills the broker and starts it again after a number of seconds.
    """

    servers: str
    mutual: str
    admin: Topics
    authority: Authority
    restart: Callable[[float], None]

    def user(self, name: str, password: str) -> None:
        """Create a user without permissions and wait until the broker accepts its password.

        The controller has the user earlier than the broker.
        """
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        made = UserScramCredentialUpsertion(name, info, password.encode())
        self.admin.admin.alter_user_scram_credentials([made])[name].result()
        client = self.client(name, **{"sasl.password": password, "log_level": 0})
        until(lambda: _answers(AdminClient({"bootstrap.servers": self.servers, **client})))

    def forget(self, name: str) -> None:
        """Delete a user."""
        gone = UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_512)
        self.admin.admin.alter_user_scram_credentials([gone])[name].result()

    def allow(
        self,
        user: str,
        name: str,
        operation: AclOperation = AclOperation.READ,
        kind: ResourceType = ResourceType.TOPIC,
    ) -> None:
        """Allow a user an operation on a topic or on another kind of resource."""
        who, how = f"User:{user}", ResourcePatternType.LITERAL
        told = (kind, name, how, who, "*", operation, AclPermissionType.ALLOW)
        binding, own = AclBinding(*told), AclBindingFilter(*told)
        self.admin.admin.create_acls([binding])[binding].result()
        # The broker answers from the rules that it enforces.
        until(lambda: bool(self.admin.admin.describe_acls(own).result()))

    def client(self, user: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return the properties of a client without its password."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "ssl.ca.location": str(self.authority.certificate),
            **more,
        }


def _answers(client: AdminClient) -> bool:
    with suppress(KafkaException):
        return bool(client.list_topics(timeout=5).brokers)
    return False


@contextmanager
def secured(home: Path) -> Iterator[Secured]:
    """Run a secured broker for the duration of the block."""
    authority = Authority(home / "certificates")
    settings = Settings(home=home, kafka_port=free_port())
    port, mutual, controller = free_port(), free_port(), free_port()
    told = {
        "listeners": f"PLAINTEXT://{broker.broker_address(settings)},SASL_SSL://127.0.0.1:{port},"
        f"SSL://127.0.0.1:{mutual},CONTROLLER://127.0.0.1:{controller}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
        "SASL_SSL:SASL_SSL,SSL:SSL",
        "listener.name.ssl.ssl.client.auth": "required",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "sasl.enabled.mechanisms": MECHANISM,
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security"
        ".scram.ScramLoginModule required;",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.server()),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }

    def restart(after: float) -> None:
        broker.broker_process(settings).stop(deadline=0)
        time.sleep(after)
        broker.start_broker(settings, properties=told)

    try:
        broker.start_broker(settings, properties=told)
        admin = Topics(broker.broker_address(settings))
        scram, certified = f"127.0.0.1:{port}", f"127.0.0.1:{mutual}"
        yield Secured(scram, certified, admin, authority, restart)
    finally:
        broker.broker_process(settings).stop(deadline=5)
