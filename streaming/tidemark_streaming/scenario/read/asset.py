"""Load the asset that a scenario names instead of defining a transform in the file."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib import import_module

from tidemark.base.errors import DefinitionError
from tidemark.define.source import Source, lookup_name
from tidemark.define.transform import WindowedTransform
from tidemark_streaming.scenario.read.columns import Kind, any_value
from tidemark_streaming.scenario.read.reader import Node


def import_asset(node: Node) -> object:
    """Return the object named by `MODULE:NAME`, such as `shop.transforms:orders_per_hour`."""
    module, _, name = node.text("an asset").partition(":")
    if not module or not name:
        raise node.error(f"{node} is not an asset: write shop.transforms:orders_per_hour.")
    with node.locate_errors():
        try:
            found = import_module(module)
        except ImportError as error:
            raise node.error(
                f"the module '{module}' can't be imported: {error}. Run from a folder with a "
                "tidemark.toml, or add the module's folder to PYTHONPATH."
            ) from None
    if not hasattr(found, name):
        available = [n for n, value in vars(found).items() if isinstance(value, WindowedTransform)]
        raise node.error(
            f"'{module}' has no '{name}'; its transforms are {', '.join(available) or 'none'}."
        )
    return getattr(found, name)


def prepare_asset(found: object) -> WindowedTransform:
    """Return the transform as a scenario runs it: without a sink, and with lookup tables in its own
    database.
    """
    if not isinstance(found, WindowedTransform):
        raise DefinitionError(
            f"a scenario can run only a `windowed_asset` (got a {type(found).__name__})."
        )
    near = tuple(map(lookup_name, found.source.lookups))
    return replace(found, source=replace(found.source, lookups=near), sink=None)


def result_types(transform: WindowedTransform, columns: Mapping[str, Kind]) -> dict[str, Kind]:
    """Return the types of its keys and aggregates, as far as they are known before it runs."""
    keys = {key: columns.get(key, any_value()) for key in transform.keys}
    return keys | {name: any_value() for name in transform.aggregates}


def without_skew(transform: WindowedTransform) -> WindowedTransform:
    """Return the transform with a source that accepts event times after the arrival.

    A scenario that sets no clock has no processing times to compare them with.
    """
    return replace(transform, source=replace(transform.source, max_future_skew=None))


def check_skew(sources: Iterable[Source]) -> None:
    """Refuse the sources of a derived source that compare event times with processing times."""
    for source in sources:
        if source.max_future_skew is not None:
            raise DefinitionError(
                f"source '{source.name}' has max_future_skew, so the scenario needs 'clock_start'."
            )
