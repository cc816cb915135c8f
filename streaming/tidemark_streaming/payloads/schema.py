"""Schemas of records, as a registry returns them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Schema:
    """A schema that a registry returned.

    Args:
        kind: AVRO, PROTOBUF or JSON.
        text: the schema.
        references: the schemas that this schema refers to. They must be parsed first.
    """

    kind: str
    text: str
    references: "tuple[Schema, ...]" = ()
