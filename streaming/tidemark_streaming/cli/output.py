"""The result of a command: as text for people, or as JSON with `--json`."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, ParamSpec

import typer

from tidemark_streaming.cli.console import print_json

P = ParamSpec("P")

Json = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON on stdout, for scripts.")
]


@dataclass(frozen=True)
class Output:
    """The result of a command.

    Args:
        data: what `--json` prints.
        show: prints the result for people.
        failure: how the command ends if the result is a failure.
    """

    data: object
    show: Callable[[], None]
    failure: Exception | None = None


def with_json(command: Callable[P, Output]) -> Callable[P, None]:
    """Return the command with the option `--json`. It prints its result."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
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
