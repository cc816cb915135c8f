"""Why a field of a record does not fit its column: the reasons of dead letters."""

from enum import Enum

from tidemark_streaming.payloads.time_rules import FINER_OPTION, TRUNCATE, ZONE_OPTION


class Fault(Enum):
    """What is wrong with the value of a field. The text follows "The field 'x' "."""

    MISFIT = "is not a valid {kind}."
    FINER = (
        "has a time with more precision than microseconds. To drop the extra digits, set "
        f"{FINER_OPTION} to '{TRUNCATE}'."
    )
    NO_ZONE = (
        "has a time without a time zone. Specify the zone in the format: the option "
        f"{ZONE_OPTION}, or time_zone= of Avro(…)."
    )
    OUT_OF_RANGE = "has a time outside the years 1 to 9999."

    def describe_fault(self, name: str, kind: str) -> str:
        """Return the reason of a dead letter. It has no values of the record.

        Args:
            name: the name of the field.
            kind: the type of its column.
        """
        return f"The field '{name}' {self.value.format(kind=kind.upper())}"
