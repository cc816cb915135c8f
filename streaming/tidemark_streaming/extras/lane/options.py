"""Translate a Kafka client's properties into options of Spark's connector.

Definitions name properties as librdkafka does. The connector uses a Java client, in which some
properties have other names. Properties without a counterpart are refused rather than ignored.
Secrets are in environment variables of the lane's Spark, from which the Kafka client reads them.
Plans and options contain only the names of these variables.
"""

import hashlib
from collections.abc import Callable, Mapping

from tidemark.base.errors import DefinitionError
from tidemark.base.secret import Secret
from tidemark_streaming.kafka.client import Properties
from tidemark_streaming.kafka.cluster import READ_COMMITTED

_PLAIN: Mapping[str, str] = {
    "security.protocol": "security.protocol",
    "sasl.mechanism": "sasl.mechanism",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
}
_OF_ITS_OWN = ("sasl.username", "sasl.password", "isolation.level")
_VERIFYING = "ssl.endpoint.identification.algorithm"
_ALLOWED = tuple(_PLAIN) + _OF_ITS_OWN + (_VERIFYING,)

_LOGIN = "org.apache.kafka.common.security"
_MODULES = {
    "PLAIN": f"{_LOGIN}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_LOGIN}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_LOGIN}.scram.ScramLoginModule",
}
_FROM_ENVIRONMENT = {
    "config.providers": "env",
    "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
}


def check_client(client: Properties, owner: str) -> None:
    """Refuse properties that Spark's Kafka connector does not support.

    Args:
        owner: the lane that has the properties, for the error message.
    """
    for name in client:
        if name not in _ALLOWED:
            raise DefinitionError(
                f"{owner} has the `client` property {name}, which Spark's Kafka client does not "
                f"support. Supported: {', '.join(_ALLOWED)}."
            )
    mechanism = client.get("sasl.mechanism", client.get("sasl.mechanisms"))
    if mechanism is not None and mechanism not in _MODULES:
        raise DefinitionError(
            f"{owner} has the sasl.mechanism {mechanism}, which is not supported here. Supported: "
            f"{', '.join(_MODULES)}."
        )


def connection_options(servers: str, client: Properties) -> dict[str, str]:
    """Return the options of Spark's Kafka connector for a connection. They contain no secrets."""
    java_options = {"bootstrap.servers": servers}
    for name, java_name in _PLAIN.items():
        if name in client:
            java_options[java_name] = str(client[name])
    if "ssl.ca.location" in client:
        java_options["ssl.truststore.type"] = "PEM"
    if _VERIFYING in client:
        java_options[_VERIFYING] = str(client[_VERIFYING]).replace("none", "")
    if "sasl.mechanism" in java_options:
        user = _reference_or_value(client.get("sasl.username", ""), _escape_quotes)
        password = _reference_or_value(client.get("sasl.password", ""), _escape_quotes)
        module = _MODULES[java_options["sasl.mechanism"]]
        java_options["sasl.jaas.config"] = (
            f'{module} required username="{user}" password="{password}";'
        )
    if any(isinstance(value, Secret) for value in client.values()):
        java_options |= _FROM_ENVIRONMENT
    return {f"kafka.{name}": value for name, value in java_options.items()}


def isolation_option(client: Properties) -> dict[str, str]:
    """Return the option for transaction isolation, which only readers need."""
    return {"kafka.isolation.level": str(client.get("isolation.level", READ_COMMITTED)).lower()}


def secret_variables(client: Properties) -> dict[str, str]:
    """Return the environment variables with a client's secrets, which the lane's Spark needs."""
    variables = dict[str, str]()
    for value in client.values():
        if isinstance(value, Secret):
            variables[_name_variable(value)] = _escape_quotes(value.reveal())
    return variables


def _reference_or_value(value: str | Secret, plain: Callable[[str], str]) -> str:
    if isinstance(value, Secret):
        return f"${{env:{_name_variable(value)}}}"
    return plain(value)


def _name_variable(value: Secret) -> str:
    digest = hashlib.sha256(value.reference.encode()).hexdigest()[:16]
    return f"TIDEMARK_LANE_SECRET_{digest.upper()}"


def _escape_quotes(value: str) -> str:
    """Return a value escaped for the quotation marks of a login configuration."""
    return value.replace("\\", "\\\\").replace('"', '\\"')
