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
    """An object that a domain defines for an extra. The extra runs it in separate processes."""

    @property
    def name(self) -> str:
        """The name of the pipeline, unique in its extra."""
        ...

    @property
    def source(self) -> "Source":
        """The source of the pipeline's events."""
        ...

    @property
    def inputs(self) -> Sequence[str]:
        """The topics that the pipeline reads."""
        ...

    @property
    def outputs(self) -> Sequence[str]:
        """The topics that the pipeline writes."""
        ...


@dataclass(frozen=True)
class PipelineOverview:
    """The state and progress of a pipeline.

    Args:
        state: `running`, `waiting`, or `ended` if the pipeline exited without being stopped; None
            if it should not run.
        error: why the pipeline waits or ended.
        waiting: the number of pending records, by topic and partition; None if it is unknown.
        trouble: why the number of pending records is unknown.
    """

    pipeline: Pipeline
    state: str | None = None
    error: str | None = None
    waiting: Mapping[tuple[str, int], int] | None = None
    trouble: str | None = None


class Extra(ABC):
    """The interface between an extra and the other packages.

    Attributes:
        name: the name of the extra's command, which is also the `kind` in records of running
            commands (`foreground.Command`).
        module: the name of the module in which a domain defines the extra's pipelines.
    """

    name: str
    module: str

    @property
    @abstractmethod
    def pipeline_class(self) -> type[Pipeline]:
        """The class of the extra's pipelines."""

    @property
    @abstractmethod
    def command_function(self) -> Callable[..., None]:
        """The function of the extra's command."""

    @abstractmethod
    def running_engines(self, settings: Settings) -> Mapping[str, Settings]:
        """Return the settings of the extra's running Spark processes, by pipeline name."""

    @abstractmethod
    def create_monitor(
        self, settings: Settings, pipelines: Iterable[Pipeline]
    ) -> Callable[[], Sequence[PipelineOverview]]:
        """Return a function that returns the current overviews of the pipelines, and does not wait
        for brokers."""


@cache
def find_extras() -> tuple[Extra, ...]:
    """Return the installed extras: the object `EXTRA` of each package in `extras`."""
    return tuple(module.EXTRA for module in import_modules(_PACKAGE))


def import_modules(package: str) -> list[ModuleType]:
    """Import the modules and packages in a package, and return them in the order of their names."""
    names = sorted(info.name for info in iter_modules(import_module(package).__path__))
    return [import_module(f"{package}.{name}") for name in names]
