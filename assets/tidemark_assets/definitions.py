"""The definitions that Dagster loads: the assets of domains, each domain as a code location."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import dagster as dg

from tidemark.base.errors import DefinitionError
from tidemark.base.instants import parse_duration
from tidemark.base.settings import Settings
from tidemark.define.derived.derived_source import DerivedSource
from tidemark_assets import parameter
from tidemark_assets.base.names import Names, with_prefix
from tidemark_assets.base.resources import resource
from tidemark_assets.checks.definition_check import current_check
from tidemark_assets.checks.findings_check import findings_checks
from tidemark_assets.checks.freshness_check import fresh_check
from tidemark_assets.jobs.corrections import correct_operation
from tidemark_assets.jobs.decisions import quarantine_operations
from tidemark_assets.jobs.maintenance import maintenance
from tidemark_assets.jobs.nightly import nightly_operation, nightly_schedule, parity_check
from tidemark_assets.jobs.operations import Operation, operations_job
from tidemark_assets.jobs.rebuilds import rebuild_operations
from tidemark_assets.jobs.replays import replay_operation
from tidemark_assets.jobs.stream_jobs import stream_job
from tidemark_assets.plain_definitions import register_definition
from tidemark_assets.sensors.arrivals import arrivals
from tidemark_assets.sensors.findings import findings_reporter
from tidemark_assets.sensors.frame import SensorPart, create_sensor
from tidemark_assets.sensors.ingests import ingests_reporter
from tidemark_assets.sensors.lags import lag_reporter
from tidemark_assets.sensors.partitions import partitions_reporter
from tidemark_assets.sensors.sinks import sink_reporter
from tidemark_assets.sensors.streams import supervisor_part
from tidemark_assets.tables.options import DagsterOptions
from tidemark_assets.tables.source_assets import connector_asset, log_asset, reference_assets
from tidemark_assets.tables.windows import windows_asset
from tidemark_streaming.base.extra import import_modules
from tidemark_streaming.derived import DerivedConnector
from tidemark_streaming.home import domains as packages
from tidemark_streaming.home.domains import Domains
from tidemark_streaming.kafka import KafkaConnector, KafkaSink

__all__ = ["build_definitions", "domain_definitions"]

_EXTRAS = "tidemark_assets.extras"
"""The package of extras. Their modules have the functions `definitions` and `sensor_parts`, for a
domain's definitions and for the parts of its sensor.
"""


def domain_definitions(
    domain: str, key_prefix: str | None = None, *, in_process: bool = True
) -> Callable[..., dg.Definitions]:
    """Return a domain as a code location, built with the settings of the process that loads it.

    Use this function in the domain's module `definitions`, next to `presentation`. The first domain
    of the settings also has the jobs that exist only once, for all tables.

    Example:
        definitions = domain_definitions("shop")

    Args:
        domain: a package, as in `tidemark_assets.flights`.
        key_prefix: the prefix of each key and name, as for `build_definitions`.
        in_process: true if steps run in their run's own process, as for `build_definitions`. Use
            False to merge the domain with definitions that have an executor of their own.
    """

    def load() -> dg.Definitions:
        settings = Settings()
        # This raises an error if two tables have one name, even in different domains.
        packages.load_importable(settings.domains)
        domain_resources = {"tidemark": resource(settings)}
        definitions = build_definitions(
            [domain], domain_resources, in_process=in_process, key_prefix=key_prefix
        )
        if domain == settings.domains[0]:
            definitions = dg.Definitions.merge(definitions, maintenance(with_prefix(key_prefix)))
        return definitions

    return dg.definitions(load)


def build_definitions(
    domains: Iterable[str],
    resources: Mapping[str, object],
    *,
    in_process: bool = True,
    key_prefix: str | None = None,
) -> dg.Definitions:
    """Build the assets of some domains, a group for each, and the jobs that keep them up to date.

    Args:
        domains: packages, as in `tidemark_assets.flights`.
        resources: a mapping with the key `tidemark`: the resource that gives steps the engine and
            the warehouse.
        in_process: true if steps run in their run's own process. Steps are thin clients of one
            engine, so separate processes would only cost start-up time. Use False if these
            definitions become part of a project with its own executor: a project has only one.
        key_prefix: the prefix of each key, as in `dev` or `trials/dev`. Names of groups, jobs,
            sensors, schedules, steps and resources have it too, with `_` for `/`.

    Raises:
        DefinitionError: a domain can't be loaded, or its `presentation` is missing or names unknown
            assets or sources. Also if two tables have one name, or if the prefix is invalid.
    """
    names = with_prefix(key_prefix)
    loaded = {d: (packages.load_domains([d]), _presentation(d)) for d in domains}
    # This raises an error if two tables have one name, even in different domains.
    packages.load_importable(loaded)
    return dg.Definitions.merge(
        dg.Definitions(
            resources={
                **{names.own(key): given for key, given in resources.items()},
                names.own(parameter.WINDOWS): parameter.reader(names),
            },
            executor=dg.in_process_executor if in_process else None,
        ),
        *(part for domain, given in loaded.items() for part in _parts(domain, *given, names)),
    )


def _parts(
    domain: str, domains: packages.Domains, show: DagsterOptions, names: Names
) -> Iterator[dg.Definitions]:
    group = domain.rpartition(".")[2]
    for option, configured in (("partitions", show.by_asset), ("the automation", show.automation)):
        if unknown := [asset for asset in configured if asset not in domains.transforms]:
            raise DefinitionError(
                f"Domain '{domain}' sets {option} for an asset '{unknown[0]}', which it does not "
                f"define; it defines: {', '.join(sorted(domains.transforms)) or 'none'}."
            )
    strange = [source for source in show.arrives_within if source not in domains.ingestions]
    if strange:
        raise DefinitionError(
            f"Domain '{domain}' sets `arrives_within` for '{strange[0]}', for which it has no "
            f"connector; it has connectors for: {', '.join(sorted(domains.ingestions)) or 'none'}."
        )
    assets: list[dg.AssetsDefinition | dg.AssetSpec] = []
    for ingestion in domains.ingestions.values():
        register_definition(ingestion)
        connector = ingestion.connector(ingestion.source.name)
        options = show.of_source(ingestion.source.name, names.own(group))
        if not isinstance(connector, DerivedConnector):
            assets.append(connector_asset(connector, options, names))
        assets.append(log_asset(ingestion, options, names))
        assets += reference_assets(ingestion.source, options, names)
    for name, definition in domains.transforms.items():
        register_definition(definition)
        options = show.of_asset(name, names.own(group))
        assets.append(windows_asset(definition, show.partitions_of(name), options, names))
    yield dg.Definitions(assets=assets)
    yield from _automation(group, domains, show, names)
    for extra in import_modules(_EXTRAS):
        yield from extra.definitions(group, domains, show, names)


def _presentation(domain: str) -> DagsterOptions:
    name = f"{domain}.definitions"
    try:
        show = getattr(import_module(name), "presentation", None)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        show = None
    if isinstance(show, DagsterOptions):
        return show
    raise DefinitionError(
        f"Domain '{domain}' has no presentation for Dagster: set `presentation = "
        f"DagsterOptions(partitions=…)` in the module `{name}`."
    )


def _automation(
    domain: str, domains: Domains, show: DagsterOptions, names: Names
) -> Iterator[dg.Definitions]:
    """Yield the sensors and jobs of a domain, and the checks that its assets' pages can run."""
    transforms = domains.transforms
    partitions = show.partitions_of
    ingestions = domains.ingestions.values()
    yield from _operations(domain, domains, show, names)
    parts = list[SensorPart]()
    stream_jobs = list[dg.JobDefinition]()
    if transforms:
        within = parse_duration(show.fresh_within)
        job = stream_job(domain, transforms, names)
        stream_jobs.append(job)
        parts.append(supervisor_part(domain, transforms, job.name, names))
        parts.append(partitions_reporter(transforms, partitions, within, names))
        yield dg.Definitions(jobs=stream_jobs, asset_checks=_checks(domains, show, names))
    if ingestions or transforms:
        yield arrivals(domain, ingestions, transforms, partitions, names)
        yield dg.Definitions(asset_checks=findings_checks(domains, names))
        parts.append(findings_reporter(domain, domains, names))
    for ingestion in ingestions:
        parts.append(ingests_reporter(ingestion.source, names))
        if isinstance(ingestion.connector(ingestion.source.name), KafkaConnector):
            parts.append(lag_reporter(ingestion, names))
    for transform in transforms.values():
        if isinstance(transform.sink, KafkaSink):
            parts.append(sink_reporter(transform, names))
    for extra in import_modules(_EXTRAS):
        parts.extend(extra.sensor_parts(domains, names))
    if parts:
        description = (
            "Restarts streams that should run and do not. Reports ingests, runs and builds of "
            "streams and the command line: ingested arrivals, partitions when they close and when "
            "late events change them, the state of Kafka topics, and what needs attention."
        )
        sensor = create_sensor(names, f"{domain}_reports", description, parts, jobs=stream_jobs)
        yield dg.Definitions(sensors=[sensor])


def _operations(
    domain: str, domains: Domains, show: DagsterOptions, names: Names
) -> Iterator[dg.Definitions]:
    """Yield the job of all operations on a domain's tables, and its nightly schedule."""
    transforms = domains.transforms
    partitions = show.partitions_of
    derived = dict[str, DerivedSource]()
    for ingestion in domains.ingestions.values():
        if isinstance(ingestion.source, DerivedSource):
            derived[ingestion.source.name] = ingestion.source
    # The assets that are computed from the log. Roll-ups follow these assets.
    counted = {name: t for name, t in transforms.items() if t.rolled_up_name is None}
    if not counted and not derived:
        return
    operations = rebuild_operations(domain, counted, derived)
    if counted:
        operations.append(correct_operation(domain, counted, partitions))
        operations.append(replay_operation(domain, counted))
        operations.append(nightly_operation(domain, counted, partitions))
    checked = [(t, partitions(name)) for name, t in transforms.items() if t.all_expectations]
    operations.extend(quarantine_operations(checked, names))
    step = f"{domain}_operation"
    job = operations_job(
        names,
        f"{domain}_operations",
        step,
        "Does one of the operations on the domain's tables: " + _list_names(operations) + ".",
        operations,
    )
    yield dg.Definitions(jobs=[job])
    if counted:
        yield dg.Definitions(schedules=[nightly_schedule(domain, job, names.own(step), names)])


def _list_names(operations: Sequence[Operation[Any]]) -> str:
    return ", ".join(operation.name for operation in operations)


def _checks(domains: Domains, show: DagsterOptions, names: Names) -> list[dg.AssetChecksDefinition]:
    """Return the checks that the pages of a domain's assets can run."""
    checks = list[dg.AssetChecksDefinition]()
    within = parse_duration(show.fresh_within)
    for name, transform in domains.transforms.items():
        checks.append(fresh_check(transform, within, names))
        checks.append(parity_check(transform, show.partitions_of(name), names))
        if transform.rolled_up_name is None:
            checks.append(current_check(transform, names))
    return checks
