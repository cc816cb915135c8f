"""Write a test's arrivals and expectations to a file as a scenario."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from tidemark.base.instants import instant, iso

Row = Mapping[str, Any]


def write_scenario(path: Path, content: Row) -> None:
    """Write a scenario that is given as Python values."""
    path.write_text(
        yaml.safe_dump(_plain(content), sort_keys=False, allow_unicode=True, width=1000),
        encoding="utf-8",
    )


def items(arrivals: Sequence[Sequence[Row] | Row]) -> list[Row]:
    """Return the items of a scenario's `arrivals`: a list of rows becomes one arrival."""
    return [a if isinstance(a, Mapping) else {"rows": list(a)} for a in arrivals]


def _plain(value: Any) -> Any:  # noqa: ANN401
    match value:
        case Mapping():
            return {str(name): _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case datetime():
            return iso(instant(value))
        case date() | Decimal():
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)
