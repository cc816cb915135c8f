"""Read the connectors of a component in YAML: `orders: {kafka: {topics: [orders]}}`.

A connector has the arguments of its class in `tidemark.connectors`, with the same names.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.base.secret import Secret, secret
from tidemark.define.source import Source
from tidemark_streaming.connector import Connector, Ingestion
from tidemark_streaming.delta import DeltaConnector
from tidemark_streaming.files import FileConnector
from tidemark_streaming.kafka import KafkaConnector
from tidemark_streaming.payloads import Avro, Json, Protobuf
from tidemark_streaming.scenario.read.reader import Node

_FORMATS = ("csv", "json", "parquet")


def read_ingestion(source: Source, node: Node) -> Ingestion:
    """Return the connection of a source to the connector that a node describes."""
    kind, options = node.read_choice("a connector", _CONNECTORS)
    connector = _CONNECTORS[kind]
    arguments = connector.read_arguments(f"a connector of {kind}", options)

    def connect(landing: str) -> Connector:
        return connector.make(source, landing, arguments)

    with options.locate_errors():
        # Refuses wrong arguments now, and not at the first poll.
        connect(source.name)
    return Ingestion(source, connect)


def _read_text(node: Node, name: str) -> str:
    return node.read_text(f"'{name}'")


def _read_texts(node: Node, name: str) -> list[str]:
    """Return a list of texts. A single text is a list, too."""
    items = node.read_items(f"'{name}'") if node.is_list else [node]
    return [item.read_text(f"'{name}'") for item in items]


def _read_integer(node: Node, name: str) -> int:
    return node.read_integer(f"'{name}'")


def _read_boolean(node: Node, name: str) -> bool:
    return node.read_boolean(f"'{name}'")


def _read_options(node: Node, name: str) -> dict[str, str | bool]:
    """Return options whose values are true, false or a text."""
    options = dict[str, str | bool]()
    for key, value in node.read_entries(f"'{name}'"):
        option = key.read_text("an option")
        if value.raw.tag == "tag:yaml.org,2002:bool":
            options[option] = value.read_boolean("an option")
        else:
            options[option] = value.read_text("an option")
    return options


def _read_file_format(node: Node, _: str) -> str:
    return node.read_word("a format", _FORMATS)


def _read_record_format(node: Node, _: str) -> object:
    """Return the format of records: `json`, or a class of formats with its arguments."""
    if not node.is_mapping:
        return node.read_word("a format", ("json",))
    kind, options = node.read_choice("a format", _RECORD_FORMATS)
    record_format = _RECORD_FORMATS[kind]
    arguments = record_format.read_arguments(f"the format {kind}", options)
    with options.locate_errors():
        return record_format.make(**arguments)


def _read_client(node: Node, name: str) -> dict[str, str | Secret]:
    """Return properties of Kafka's client. A secret is `{secret: "env:NAME"}`."""
    properties = dict[str, str | Secret]()
    for key, value in node.read_entries(f"'{name}'"):
        property_name = key.read_text("a property")
        if value.is_mapping:
            _, reference = value.read_choice("a property", ("secret",))
            with reference.locate_errors():
                properties[property_name] = secret(reference.read_text("a secret"))
        else:
            properties[property_name] = value.read_text("a property")
    return properties


def _read_adjacent_file(node: Node, name: str) -> str:
    """Return the path of a file next to the YAML file."""
    return str(node.path.parent / node.read_text(f"'{name}'"))


_Reader = Callable[[Node, str], Any]


@dataclass(frozen=True)
class _Kind:
    """A kind of connectors or formats.

    Args:
        make: for a connector, takes the source, the landing folder and the arguments; for a format,
            the arguments.
        arguments: how each argument is read.
    """

    make: Callable[..., Any]
    required: Sequence[str]
    arguments: Mapping[str, _Reader]

    def read_arguments(self, subject: str, options: Node) -> dict[str, Any]:
        """Return the arguments in a mapping of a YAML file.

        Args:
            subject: what the mapping describes, for messages.
        """
        optional = [name for name in self.arguments if name not in self.required]
        fields = options.read_fields(subject, self.required, optional)
        arguments = dict[str, Any]()
        for name, value in fields.items():
            arguments[name] = self.arguments[name](value, name)
        return arguments


def _make_files(source: Source, landing: str, arguments: Mapping[str, Any]) -> FileConnector:
    return FileConnector(source, landing, **arguments)


def _make_kafka(source: Source, _: str, arguments: Mapping[str, Any]) -> KafkaConnector:
    return KafkaConnector(source, **arguments)


def _make_delta(source: Source, _: str, arguments: Mapping[str, Any]) -> DeltaConnector:
    return DeltaConnector(source, **arguments)


_CONNECTORS = {
    "files": _Kind(
        _make_files,
        ("format",),
        {
            "format": _read_file_format,
            "options": _read_options,
            "names": _read_texts,
            "accept_change": _read_boolean,
        },
    ),
    "kafka": _Kind(
        _make_kafka,
        ("topics",),
        {
            "topics": _read_texts,
            "start": _read_text,
            "servers": _read_text,
            "format": _read_record_format,
            "options": _read_options,
            "correlation": _read_text,
            "client": _read_client,
            "rows": _read_integer,
            "accept_loss": _read_boolean,
            "accept_change": _read_boolean,
        },
    ),
    "delta": _Kind(
        _make_delta,
        ("path",),
        {
            "path": _read_text,
            "start": _read_integer,
            "change_feed": _read_boolean,
            "skip_change_commits": _read_boolean,
            "time_zone": _read_text,
            "accept_loss": _read_boolean,
            "accept_change": _read_boolean,
        },
    ),
}

_RECORD_FORMATS = {
    "json": _Kind(Json, (), {"options": _read_options, "by_id": _read_boolean}),
    "avro": _Kind(
        Avro,
        (),
        {
            "schema": _read_adjacent_file,
            "by_id": _read_boolean,
            "registry": _read_text,
            "time_zone": _read_text,
            "finer": _read_text,
        },
    ),
    "protobuf": _Kind(
        Protobuf,
        ("descriptors", "message"),
        {
            "descriptors": _read_adjacent_file,
            "message": _read_text,
            "by_id": _read_boolean,
            "finer": _read_text,
        },
    ),
}
