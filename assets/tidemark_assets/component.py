"""A component: domains as a part of a Dagster project that is there already.

# src/my_project/defs/windows/defs.yaml
type: tidemark_assets.component.WindowedDomains
attributes:
  domains: [my_project.shop]
"""

from collections.abc import Sequence

import dagster as dg

from tidemark.base.settings import Settings
from tidemark_assets.definitions import build_definitions
from tidemark_assets.maintenance import maintenance as kept_small
from tidemark_assets.resources import resource


class WindowedDomains(dg.Component, dg.Model, dg.Resolvable):
    """Windows of event streams by Tidemark: the assets, checks, sensors and jobs of domains.

    A domain is a package with modules `sources`, `feed`, `transforms` and `definitions`, the last
    of which has its `presentation`. The settings are Tidemark's own: `tidemark.toml` in the
    project's folder, and variables of the environment. A project has one such component, which
    names all of its domains; its executor stays the project's.
    """

    domains: Sequence[str]
    """Packages, as in `my_project.shop`."""

    maintenance: bool = False
    """Whether this project keeps the tables small: one place does that for all."""

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        found = build_definitions(
            self.domains, {"tidemark": resource(Settings())}, in_process=False
        )
        return dg.Definitions.merge(found, kept_small()) if self.maintenance else found
