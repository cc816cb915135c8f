"""The result of a command: as text for people, or as JSON with `--json`."""

import base64
import inspect
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from functools import wraps
from typing import Annotated, Any, ParamSpec

import typer

_P = ParamSpec("_P")

Json = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON on stdout, for scripts.")
]


@dataclass(frozen=True)
class Output:
    """The result of a command, to print for people or as JSON.

    Args:
        data: the result for `--json`.
        show: prints the result for people.
        failure: the exception to raise after the output, which sets the exit code; None for a
            success.
    """

    data: object
    show: Callable[[], None]
    failure: Exception | None = None


def with_json(command: Callable[_P, Output]) -> Callable[_P, None]:
    """Add the option `--json` to a command that returns an `Output`, and print that output."""

    @wraps(command)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        json = kwargs.pop("json", False)
        result = command(*args, **kwargs)
        if json:
            print_json(result.data)
        else:
            result.show()
        if result.failure is not None:
            raise result.failure

    signature = inspect.signature(command)
    option = inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False)
    parameters = [*signature.parameters.values(), option.replace(annotation=Json)]
    run.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore[reportAttributeAccessIssue]
    run.__annotations__ = {**command.__annotations__, "json": Json}
    return run


def print_json(value: object) -> None:
    """Print a result as JSON."""
    typer.echo(as_json(value, indent=2))


def as_json(value: object, indent: int | None = None) -> str:
    """Return any value of a table as JSON.

    JSON lacks NaN and the infinities: they become the strings `NaN`, `Infinity` and `-Infinity`, as
    in Spark. Instants become ISO 8601, and bytes Base64. Values of other types that JSON lacks,
    such as decimals, become strings.
    """
    return json.dumps(_to_plain(value), indent=indent, allow_nan=False)


def _to_plain(value: object) -> Any:  # noqa: ANN401 (what JSON can hold)
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case None | str() | bool() | int() | float():
            return value
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case Mapping():
            return {
                name if isinstance(name, str) else as_json(name): _to_plain(part)
                for name, part in value.items()
            }
        case list() | tuple() | set() | frozenset():
            return [_to_plain(part) for part in value]
        case _:
            return str(value)
