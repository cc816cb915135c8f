"""Schemas of records, as a registry has them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Schema:
    """A schema as its registry has it.

    Args:
        kind: AVRO, PROTOBUF or JSON.
        text: the schema.
        references: the schemas that it refers to, which must be parsed before it.
    """

    kind: str
    text: str
    references: "tuple[Schema, ...]" = ()
