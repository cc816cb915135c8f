"""The configuration of steps, and their failures.

A failure is shown as one message. The step is retried if the error may be transient: an engine or
brokers that do not respond may recover within moments, and a table that others write may be free
again. Dagster therefore retries such a step with growing waits. A retry does not help with any
other error that a user can fix.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from types import GenericAlias
from typing import Any
from zlib import crc32

import dagster as dg
from dagster import OpExecutionContext
from pydantic import Field, create_model

from tidemark.base.errors import ConflictError, EngineError, TidemarkError

_TRANSIENT_ERRORS = (ConflictError, EngineError)
"""Errors that count as transient in any case."""

RETRY_DELAYS_SECONDS = (5, 20, 60)
"""Seconds before each retry of a step."""


class OfAssets(dg.Config):
    """The config of a job: the names of the assets that it is for."""

    assets: list[str]


def of_assets(
    domain: str,
    assets: Iterable[str],
    *,
    by_default: str | None = "all",
    default: Iterable[str] | None = None,
) -> type[OfAssets]:
    """Return the config class of a job that a user launches for some assets of a domain.

    Args:
        assets: the names that the user can choose.
        by_default: a text that describes the default choice; None if a choice is required.
        default: the names of the assets that are chosen by default; None for all assets.
    """
    description = "The assets" if by_default is None else f"The assets (default: {by_default})"
    names = list(assets if default is None else default)
    field = Field(default=... if by_default is None else names, description=f"{description}.")
    chosen: Any = GenericAlias(list, (choice(f"{domain}_assets", assets),))
    return create_model("OfAssets", __base__=OfAssets, assets=(chosen, field))


def choice(name: str, members: Iterable[str]) -> Any:  # noqa: ANN401 (a class that is made here)
    """Return a type with the given values, among which a user chooses in Dagster's launchpad.

    Dagster identifies such a type by its name. The name has a hash of the values, so that types
    with different values have different names.
    """
    values = {member: member for member in members}
    return StrEnum(f"{name}_{crc32(' '.join(values).encode()):08x}", values)


class Failures:
    """The errors of some assets, collected while a step continues with the others."""

    def __init__(self, context: OpExecutionContext) -> None:
        self._context = context
        self._messages: list[str] = []
        self._passing: list[Exception] = []

    def add(self, message: str, cause: Exception | None = None) -> None:
        """Record and log an error. The step is retried only if `cause` is given and transient."""
        self._messages.append(message)
        self._context.log.error(message)
        if cause is not None and is_transient(cause):
            self._passing.append(cause)

    @contextmanager
    def collect(self, asset: str) -> Iterator[None]:
        """Record a `TidemarkError` of the `with` block as an error of this asset."""
        try:
            yield
        except TidemarkError as error:
            self.add(f"{asset}: {error}", error)

    def raise_all(self) -> None:
        """Fail the step with all recorded errors, if any. If one may be transient, retry first."""
        if self._passing:
            _request_retry(self._passing[0])
        if self._messages:
            raise dg.Failure(" ".join(self._messages), allow_retries=False)


def is_transient(error: Exception) -> bool:
    """Return whether an error may be transient."""
    return isinstance(error, _TRANSIENT_ERRORS) or (
        isinstance(error, TidemarkError) and error.retriable
    )


@contextmanager
def failing_with_message() -> Iterator[None]:
    """Fail the step with only the message of a `TidemarkError` that the `with` block raises.

    If the error may be transient, retry the step first.
    """
    try:
        yield
    except TidemarkError as error:
        if is_transient(error):
            _request_retry(error)
        raise dg.Failure(description=str(error), allow_retries=False) from None


def _request_retry(error: Exception) -> None:
    """Request a retry of the step from Dagster, while retries are left."""
    tried = dg.OpExecutionContext.get().retry_number
    if tried < len(RETRY_DELAYS_SECONDS):
        raise dg.RetryRequested(len(RETRY_DELAYS_SECONDS), RETRY_DELAYS_SECONDS[tried]) from error
