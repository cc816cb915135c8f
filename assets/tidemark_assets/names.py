"""How what Tidemark defines is called in a Dagster project: under a prefix, if it has one.

A project may have several of Tidemark's homes, say those of production and of trials, or have
assets and jobs that are called as Tidemark's would be. So each key and name is made here.
"""

import re
from dataclasses import dataclass
from typing import Protocol

import dagster as dg

from tidemark.base.errors import DefinitionError
from tidemark_assets.resources import TidemarkResource

_PART = re.compile(r"\w+", re.ASCII)


class Resourceful(Protocol):
    """A context that has resources: a step's, a check's or a sensor's."""

    @property
    def resources(self) -> object: ...


@dataclass(frozen=True)
class Names:
    """The keys and names under one prefix.

    Args:
        prefix: its parts, from the outermost.
    """

    prefix: tuple[str, ...] = ()

    def key(self, *parts: str) -> dg.AssetKey:
        """The key of an asset."""
        return dg.AssetKey([*self.prefix, *parts])

    def own(self, name: str) -> str:
        """The name of anything else: Dagster has no levels of these."""
        return "_".join([*self.prefix, name])

    @property
    def resource(self) -> str:
        """The key of the resource that gives the engine and the warehouse."""
        return self.own("tidemark")

    @property
    def needs(self) -> set[str]:
        """The resources that a step, a check or a sensor asks for."""
        return {self.resource}

    def tidemark(self, context: Resourceful) -> TidemarkResource:
        """The engine and the warehouse, as a context has them."""
        return getattr(context.resources, self.resource)


PLAIN = Names()
"""Without a prefix."""


def under(prefix: str | None) -> Names:
    """The names under a prefix, as in `dev` or `trials/dev`; without one they are plain.

    Raises:
        DefinitionError: the prefix has other characters than letters, digits and `_`.
    """
    if prefix is None:
        return PLAIN
    parts = tuple(prefix.split("/"))
    if all(_PART.fullmatch(part) for part in parts):
        return Names(parts)
    raise DefinitionError(
        f"'{prefix}' is no prefix of keys: it takes letters, digits and `_`, in parts that `/` "
        "separates, as in `dev` or `trials/dev`."
    )
