"""Names of Tidemark's objects in a Dagster project, with the project's prefix if it has one.

A project may have several of Tidemark's homes, such as production and trials, or have assets and
jobs with the same names. Each key and name is therefore created here.
"""

import re
from dataclasses import dataclass, replace
from typing import Protocol, Self

import dagster as dg

from tidemark.base.errors import DefinitionError
from tidemark.base.settings import Settings
from tidemark_assets.base.resources import TidemarkResource

_PART = re.compile(r"\w+", re.ASCII)


class _Resourceful(Protocol):
    """The context of a step, a check or a sensor, which has resources."""

    @property
    def resources(self) -> object: ...


@dataclass(frozen=True)
class Names:
    """Gives Dagster objects their keys and names, under one prefix.

    Args:
        prefix: the parts of the prefix, from the outermost.
    """

    prefix: tuple[str, ...] = ()

    def key(self, *parts: str) -> dg.AssetKey:
        """Return the key of an asset."""
        return dg.AssetKey([*self.prefix, *parts])

    def own(self, name: str) -> str:
        """Return the name of an object that is not an asset, for example `dev_shop_arrivals`."""
        return "_".join([*self.prefix, name])

    @property
    def resource(self) -> str:
        """The key of the resource that provides the engine and the warehouse."""
        return self.own("tidemark")

    @property
    def needs(self) -> set[str]:
        """The resources that a step, a check or a sensor requires."""
        return {self.resource}

    def tidemark(self, context: _Resourceful) -> TidemarkResource:
        """Return the engine and the warehouse from a context."""
        return getattr(context.resources, self.resource)

    def of_key(self, key: dg.AssetKey) -> Self:
        """Return the names under the prefix of an asset's key.

        A user may load an asset under another prefix than that of its definition.
        """
        return replace(self, prefix=tuple(key.path[:-1]))


class StandaloneNames(Names):
    """The names of assets that stand in a user's own definitions.

    They need no resource there: a step opens the home of the settings, like the command line.
    """

    @property
    def needs(self) -> set[str]:
        return set()

    def tidemark(self, context: _Resourceful) -> TidemarkResource:
        return TidemarkResource(Settings())


PLAIN = Names()
"""The names without a prefix."""


def with_prefix(prefix: str | None) -> Names:
    """Return the names under a prefix such as `dev` or `trials/dev`, or plain names without one."""
    if prefix is None:
        return PLAIN
    parts = tuple(prefix.split("/"))
    if all(_PART.fullmatch(part) for part in parts):
        return Names(parts)
    raise DefinitionError(
        f"'{prefix}' is not a valid key prefix: use letters, digits and `_`, with `/` between "
        "parts, for example `dev` or `trials/dev`."
    )
