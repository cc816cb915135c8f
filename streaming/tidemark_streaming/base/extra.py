"""Extras: parts of Tidemark that no other part imports.

An extra is a package in `tidemark_streaming.extras`; its Dagster definitions are a module in
`tidemark_assets.extras`. All other packages use it only through the class `Extra`. To remove an
extra, delete its package and that module.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

from tidemark.base.settings import Settings

if TYPE_CHECKING:
    from tidemark.define.source import Source

_PACKAGE = "tidemark_streaming.extras"


class Pipeline(Protocol):
    """An object that a domain defines for an extra, which runs it in processes of its own."""

    @property
    def name(self) -> str:
        """Its name, unique in its extra."""
        ...

    @property
    def source(self) -> "Source":
        """The source of its events."""
        ...

    @property
    def inputs(self) -> Sequence[str]:
        """The topics that it reads."""
        ...

    @property
    def outputs(self) -> Sequence[str]:
        """The topics that it writes."""
        ...


@dataclass(frozen=True)
class PipelineOverview:
    """The state and progress of a pipeline.

    Args:
        state: `running`, `waiting`, or `ended` if it exited without being stopped; None if it
            should not run.
        error: why it waits or ended.
        waiting: the pending records, by topic and partition; None if they are unknown.
        trouble: why they are unknown.
    """

    pipeline: Pipeline
    state: str | None = None
    error: str | None = None
    waiting: Mapping[tuple[str, int], int] | None = None
    trouble: str | None = None


class Extra(ABC):
    """The interface between an extra and the other packages.

    Attributes:
        name: the name of its command, and the kind of its records of running commands.
        module: the module of a domain that defines its pipelines.
    """

    name: str
    module: str

    @property
    @abstractmethod
    def kind(self) -> type[Pipeline]:
        """The class of its pipelines."""

    @property
    @abstractmethod
    def command(self) -> Callable[..., None]:
        """Its command."""

    @abstractmethod
    def engines(self, settings: Settings) -> Mapping[str, Settings]:
        """Return the settings of its running Spark processes, by pipeline."""

    @abstractmethod
    def monitor(
        self, settings: Settings, pipelines: Iterable[Pipeline]
    ) -> Callable[[], Sequence[PipelineOverview]]:
        """Return a function that returns the overviews of pipelines without delay."""


@cache
def find_extras() -> tuple[Extra, ...]:
    """Return the installed extras: the object `EXTRA` of each package."""
    return tuple(module.EXTRA for module in import_modules(_PACKAGE))


def import_modules(package: str) -> list[ModuleType]:
    """Import the modules and packages in a package, and return them in the order of their names."""
    names = sorted(info.name for info in iter_modules(import_module(package).__path__))
    return [import_module(f"{package}.{name}") for name in names]
