"""A component that adds domains to an existing Dagster project.

# src/my_project/defs/windows/defs.yaml
type: tidemark.dagster.WindowedDomains
attributes:
  domains: [my_project.shop]
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any

import dagster as dg
from pydantic import BaseModel, Field

from tidemark.base.errors import DefinitionError
from tidemark.base.settings import Settings
from tidemark_assets.base.names import with_prefix
from tidemark_assets.base.resources import resource
from tidemark_assets.definitions import build_definitions
from tidemark_assets.jobs.maintenance import maintenance as kept_small

__all__ = ["WindowedDomains"]

_VARIABLE = re.compile(r"\{\{\s*env\.(\w+)\s*\}\}")


def _variable(_: dg.ResolutionContext, reference: str | None) -> str | None:
    """Return the name of the variable that holds a secret. No file or page then has the secret.

    Raise an error if `reference` is not a reference to a variable.
    """
    if reference is None:
        return None
    if match := _VARIABLE.fullmatch(reference.strip()):
        return match[1]
    raise DefinitionError(
        "The `token` of WindowedDomains is a secret, so it must refer to an environment variable: "
        "write, for example, `token: '{{ env.TIDEMARK_TOKEN }}'`."
    )


class WindowedDomainsParams(BaseModel):
    """The parameters of `dg scaffold defs tidemark.dagster.WindowedDomains NAME`."""

    domain: str = Field(description="The package of the domain, as in `my_project.shop`.")


class WindowedDomainsScaffolder(dg.Scaffolder[WindowedDomainsParams]):
    """Writes the `defs.yaml` of a component with one domain."""

    @classmethod
    def get_scaffold_params(cls) -> type[WindowedDomainsParams]:
        return WindowedDomainsParams

    def scaffold(self, request: dg.ScaffoldRequest[WindowedDomainsParams]) -> None:
        dg.scaffold_component(request, {"domains": [request.params.domain]})


@dg.scaffold_with(WindowedDomainsScaffolder)
class WindowedDomains(dg.Component, dg.Model, dg.Resolvable):
    """Windows of event streams by Tidemark: the assets, checks, sensors and jobs of domains.

    A domain is a package with modules `sources`, `connectors`, `transforms` and `definitions`; the
    last module has the domain's `presentation`. Settings come from the file `tidemark.toml` in the
    project's folder, and from environment variables. The project keeps its own executor. A project
    may have several such components. Each needs a different `key_prefix`; one may have none.
    """

    domains: Sequence[str]
    """Packages, as in `my_project.shop`."""

    key_prefix: str | None = None
    """The prefix of each key and name, as in `dev` or `trials/dev`."""

    maintenance: bool = False
    """True if this project maintains the tables of the database; only one project should do so."""

    home: str | None = None
    """The folder for all of Tidemark's files, by default from the settings."""

    database: str | None = None
    """The database of the tables, by default from the settings."""

    engine_port: int | None = None
    """The port of the engine that Tidemark starts for the home, by default from the settings."""

    remote: str | None = None
    """The address of a running engine, by default from the settings."""

    token: Annotated[
        str | None, dg.Resolver(_variable, model_field_type=str, inject_before_resolve=False)
    ] = None
    """The variable that holds the engine's token, as in `{{ env.TIDEMARK_TOKEN }}`."""

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        all_of_them = context.component_tree.get_all_components(WindowedDomains)
        alike = [component for component in all_of_them if component.key_prefix == self.key_prefix]
        if len(alike) > 1:
            named = [domain for component in alike for domain in component.domains]
            prefix = f"`key_prefix: {self.key_prefix}`" if self.key_prefix else "no `key_prefix`"
            raise DefinitionError(
                f"This project has {len(alike)} WindowedDomains components with {prefix}. Let one "
                "component name all domains, for example `domains: "
                f"[{', '.join(dict.fromkeys(named))}]`, or give each a `key_prefix` of its own."
            )
        places: dict[str, Any] = {"home": self.home, "database": self.database}
        places |= {"engine_port": self.engine_port, "remote": self.remote}
        settings = Settings(**{name: value for name, value in places.items() if value is not None})
        tidemark = resource(settings, self.token)
        component_resources = {"tidemark": tidemark}
        prefix = self.key_prefix
        definitions = build_definitions(
            self.domains, component_resources, in_process=False, key_prefix=prefix
        )
        if self.maintenance:
            return dg.Definitions.merge(definitions, kept_small(with_prefix(prefix)))
        return definitions
