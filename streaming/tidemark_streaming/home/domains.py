"""Domains: the packages in which users define sources, connectors and transforms.

A domain is a Python package. Its modules `sources`, `connectors` and `transforms`, each of them
optional, contain `Source`, `Ingestion` and `Definition` objects under any name, or in lists, tuples
and dictionaries. For each extra, a further module contains the pipelines of the extra. The settings
list the domains. This module imports the domains and finds their objects by name.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import TypeVar, cast

from tidemark.base import user_code
from tidemark.base.errors import DefinitionError, TidemarkError, describe_unknown
from tidemark.base.settings import FILE, RECORDED, Settings
from tidemark.define import tables
from tidemark.define.definition import Definition
from tidemark.define.derived.chain import types_of_tables
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.rollup import base_transform
from tidemark.define.source import Source
from tidemark.define.tables import REBUILD, TableName
from tidemark_streaming.base.extra import Pipeline, find_extras
from tidemark_streaming.connector import Ingestion
from tidemark_streaming.derived import ingestion_of

_MODULES = ("sources", "connectors", "transforms")
_T = TypeVar("_T")
_P = TypeVar("_P", bound=Pipeline)


@dataclass(frozen=True)
class Domains:
    """All objects that the configured domains define.

    The sources and transforms are by their name, the ingestions by the name of their source.
    """

    sources: Mapping[str, Source]
    ingestions: Mapping[str, Ingestion]
    transforms: Mapping[str, Definition]
    pipelines: Sequence[Pipeline] = ()

    def pipelines_of(self, kind: type[_P]) -> Mapping[str, _P]:
        """Return the pipelines of a class, by name."""
        pipelines = dict[str, _P]()
        for pipeline in self.pipelines:
            if isinstance(pipeline, kind):
                pipelines[pipeline.name] = pipeline
        return pipelines

    def all_sources(self) -> Iterable[Source]:
        """Return the sources, including those that only a connector or an asset uses."""
        sources = dict(self.sources)
        for definition in chain(self.ingestions.values(), self.transforms.values()):
            sources[definition.source.name] = definition.source
        return sources.values()

    def derived_from(self, source: Source) -> list[DerivedSource]:
        """Return the derived sources that read a source's event log."""
        readers = list[DerivedSource]()
        for candidate in self.all_sources():
            if isinstance(candidate, DerivedSource):
                base_names = {base.name for base in candidate.base_sources}
                if source.name in base_names:
                    readers.append(candidate)
        return readers

    def find_downstream(self, source: Source) -> list[DerivedSource]:
        """Return all sources derived from a source, directly or not, each after its bases."""
        ordered = list[DerivedSource]()
        waiting = self.derived_from(source)
        while waiting:
            node = waiting.pop(0)
            # A source that is reached again moves behind its other bases.
            ordered = [earlier for earlier in ordered if earlier.name != node.name]
            ordered.append(node)
            waiting += self.derived_from(node)
        return ordered

    def list_tables(self) -> Iterator[TableName]:
        """Yield the names of all tables that sources, assets and rebuilds write."""
        ingestions = self.ingestions.values()
        definitions = self.transforms.values()
        for source in self.all_sources():
            yield from source.own_tables
        for ingestion in ingestions:
            yield from map(ingestion.source.lookup_table, ingestion.lookups)
        for definition in definitions:
            yield from definition.own_tables
            if definition.rolled_up_name is None:
                yield from base_transform(definition).with_side_tables(REBUILD).own_tables


def load_domains(domains: Iterable[str]) -> Domains:
    """Import the domains and return the objects that they define."""
    modules = list[ModuleType]()
    for domain in domains:
        modules += _import_modules(domain)
    return _collect_domains(modules)


def find_object(settings: Settings, kind: str, name: str, objects: Mapping[str, _T]) -> _T:
    """Return the object with a name, or raise a DefinitionError that lists all names.

    Args:
        kind: the kind of the objects, for the error message.
    """
    if name not in objects:
        # Outside the folder of a project, only the recorded domains are known.
        message = describe_unknown(kind, name, objects)
        if tuple(settings.domains) == RECORDED and not Path(FILE).exists():
            message += (
                f" There is no {FILE} in this folder: run the commands of a project in its folder."
            )
        raise DefinitionError(message)
    return objects[name]


@dataclass(frozen=True)
class AvailableDomains:
    """The objects of all modules that can be imported, and the errors of the others.

    Args:
        errors: the error messages, by the name of the module or domain that can't be loaded.
    """

    domains: Domains
    errors: Mapping[str, str] = field(default_factory=dict[str, str])


def load_available(domains: Iterable[str]) -> AvailableDomains:
    """Import the domains, and return what can be loaded. An error affects only its own module, or
    its own domain if a name clashes with a name of an earlier domain."""
    modules = list[ModuleType]()
    errors = dict[str, str]()
    for domain in domains:
        more = _importable_modules(domain, errors)
        try:
            _collect_domains(modules + more)
        except DefinitionError as error:
            errors[domain] = str(error)
        else:
            modules += more
    return AvailableDomains(_collect_domains(modules), errors)


def _importable_modules(domain: str, errors: dict[str, str]) -> list[ModuleType]:
    """Return the modules of a domain that can be imported, and add the errors of the others."""
    modules = list[ModuleType]()
    for name in _module_names():
        try:
            if _has_module(domain, name):
                modules.append(_import_module(f"{domain}.{name}"))
        except DefinitionError as error:
            # A missing package has the same error for each of its modules.
            if str(error) not in errors.values():
                errors[f"{domain}.{name}"] = str(error)
    return modules


def load_importable(domains: Iterable[str]) -> Domains:
    """Return the objects of the domains that can be imported.

    For a domain that can't be imported, its code location in Dagster reports the error.

    Raises:
        DefinitionError: two objects of a kind or two tables have the same name, perhaps in
            different domains.
    """
    modules = list[ModuleType]()
    for name in domains:
        with suppress(Exception):
            modules += _import_modules(name)
    return _collect_domains(modules)


def _collect_domains(modules: Sequence[ModuleType]) -> Domains:
    sources = _collect_objects(modules, Source, lambda s: s.name)
    ingestions = _collect_objects(modules, Ingestion, lambda i: i.source.name)
    for source in sources.values():
        if isinstance(source, DerivedSource):
            ingestions[source.name] = ingestion_of(source)
    pipelines = list[Pipeline]()
    for extra in find_extras():
        pipelines += _collect_objects(modules, extra.pipeline_class, lambda p: p.name).values()
    domains = Domains(
        sources=sources,
        ingestions=ingestions,
        transforms=_collect_objects(modules, Definition, lambda t: t.name),
        pipelines=pipelines,
    )
    tables.check_names(domains.list_tables())
    return domains


def find_code_locations(domains: Iterable[str]) -> dict[str, str]:
    """Return each domain's module of Dagster definitions, by the last part of the domain's name."""
    by_name: dict[str, str] = {}
    for domain in domains:
        name = domain.rpartition(".")[2]
        module = f"{domain}.definitions"
        if not _has_module(domain, "definitions"):
            raise DefinitionError(
                f"Domain '{domain}' does not specify how it appears in Dagster: add a module "
                "`definitions` with a `presentation` and `definitions = "
                f'domain_definitions("{domain}")`, as `tidemark new` does.'
            )
        if name in by_name:
            raise DefinitionError(
                f"The modules {by_name[name]} and {module} would both be the code location "
                f"'{name}': "
                "rename the package of one."
            )
        by_name[name] = module
    return by_name


def _module_names() -> tuple[str, ...]:
    extra_modules = tuple(extra.module for extra in find_extras())
    return _MODULES + extra_modules


def _import_modules(domain: str) -> Iterator[ModuleType]:
    for name in _module_names():
        if _has_module(domain, name):
            yield _import_module(f"{domain}.{name}")


def _import_module(module: str) -> ModuleType:
    """Import a user's module. An error message names the file and line in the user's code."""
    try:
        with types_of_tables(_find_types):
            return import_module(module)
    except TidemarkError as error:
        if (where := user_code.find_place(error)) is not None:
            error.args = (f"{where}: {error}",)
        raise
    except Exception as error:
        where = user_code.find_place(error) or f"Module '{module}'"
        raise DefinitionError(f"{where}: {user_code.describe_exception(error)}.") from None


def _find_types(table: str) -> dict[str, str]:
    """Return the columns of a table with their types, as definitions spell them.

    Return an empty dict if the table does not exist or can't be read.
    """
    # Only definitions that lack a type need these modules.
    from deltalake.exceptions import DeltaError

    from tidemark_streaming.snapshot.tables import Tables

    with suppress(OSError, DeltaError):
        return Tables.of_database(Settings()).spelled_types(table)
    return {}


def _has_module(domain: str, module: str) -> bool:
    parts = domain.split(".")
    for n in range(1, len(parts) + 1):
        package = ".".join(parts[:n])
        if package not in sys.modules and find_spec(package) is None:
            raise DefinitionError(
                f"There is no domain package '{domain}': correct the setting domains (in "
                "tidemark.toml, or TIDEMARK_DOMAINS)."
            )
        _import_module(package)
    return find_spec(f"{domain}.{module}") is not None


def _collect_objects(
    modules: Iterable[ModuleType], kind: type[_T], name: Callable[[_T], str]
) -> dict[str, _T]:
    objects: dict[str, _T] = {}
    for module in modules:
        for value in _objects_of_module(module):
            if not isinstance(value, kind):
                continue
            defined = objects.setdefault(name(value), value)
            if defined is not value:
                raise DefinitionError(
                    f"There are two {kind.__name__} objects for '{name(value)}', the second in "
                    f"{module.__name__}: remove or rename one."
                )
    return objects


def _objects_of_module(module: ModuleType) -> Iterator[object]:
    for variable_name, variable in vars(module).items():
        # Python's own variables are no definitions.
        if not variable_name.startswith("__"):
            yield from _objects_in(variable)


def _objects_in(variable: object) -> Iterator[object]:
    """Yield the object of a variable; the items of a list, a tuple, or a dictionary."""
    # Other classes that are sequences are objects of their own, for example named tuples.
    if type(variable) is dict:
        for item in list(cast("dict[object, object]", variable).values()):
            yield from _objects_in(item)
    elif type(variable) in (list, tuple):
        for item in cast("Sequence[object]", variable):
            yield from _objects_in(item)
    else:
        yield variable
