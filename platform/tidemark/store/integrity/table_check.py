"""Check the tables of sources and assets, and refuse to work on damaged ones."""

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tidemark.define import tables as tables_of
from tidemark.define.definition import Definition
from tidemark.define.source import Source
from tidemark.define.tables import LEDGER, SYSTEM_TABLES
from tidemark.store import log_rewrite, operations
from tidemark.store.integrity.asset_check import AssetCheck, find_lost_results
from tidemark.store.integrity.checked_tables import CheckedTables
from tidemark.store.integrity.damage import Damage, DamageError
from tidemark.store.integrity.source_check import SourceCheck

if TYPE_CHECKING:
    from tidemark.store.warehouse import Warehouse

CONFIRMATION_SECONDS = 0.3
"""The time before findings are checked a second time."""

checked_nodes = set[tuple[str, str]]()
"""The sources and assets that this process has checked, each with the folder of its tables."""


def demand_intact(
    warehouse: "Warehouse", source: Source, definition: Definition | None = None
) -> bool:
    """Raise `DamageError` if the tables of a source, or of an asset on it, don't belong together.

    If a process rewrites the event log of the source, wait until it has ended.

    After they have passed, the same process does not check them again, and returns False, until one
    of the tables that it has open is replaced, for example by a restored copy.

    Raises:
        DataError: an operation on the source or the asset is unfinished.
    """
    owners = [tables_of.source_owner(source.name)]
    nodes = [(_folder_of(warehouse), source.name)]
    definitions = list[Definition]()
    if definition is not None:
        owners.append(tables_of.asset_owner(definition.name))
        nodes.append((_folder_of(warehouse), f"asset {definition.name}"))
        definitions.append(definition)
    if operations.list_unfinished(warehouse):
        log_rewrite.wait_for_rewrite(warehouse, source)
        operations.check_unfinished(warehouse, owners)
        log_rewrite.report_interruption(warehouse, source)
    forget_replaced_tables(warehouse)
    if checked_nodes.issuperset(nodes):
        return False
    damages = find_damage(_folder_of(warehouse), [source], definitions)
    if damages:
        raise DamageError(damages)
    checked_nodes.update(nodes)
    return True


def forget_replaced_tables(warehouse: "Warehouse") -> bool:
    """Close the tables that this thread has open and that were replaced, for example by a restored
    copy. Return whether there was one.

    The next call of `demand_intact` then checks the tables of the folder again.
    """
    if not warehouse.close_replaced_tables():
        return False
    folder = _folder_of(warehouse)
    for node in list(checked_nodes):
        if node[0] == folder:
            checked_nodes.discard(node)
    return True


def find_damage(
    folder: str, sources: Iterable[Source], definitions: Iterable[Definition]
) -> list[Damage]:
    """Return the damage to Tidemark's own tables, and to the tables of given sources and assets."""
    sources = list(sources)
    definitions = list(definitions)
    suspected_tables = {damage.table for damage in _check_once(folder, sources, definitions)}
    if not suspected_tables:
        return []
    # A table may have been dropped, or committed to, during the check.
    time.sleep(CONFIRMATION_SECONDS)
    confirmed = _check_once(folder, sources, definitions)
    return [damage for damage in confirmed if damage.table in suspected_tables]


def find_newest_read(warehouse: "Warehouse", source: Source) -> int:
    """Return the newest arrival of a source that an asset or a derived source has read; -1 if none.

    It is later than the newest arrival of the timeline if the source was restored from an earlier
    copy.
    """
    tables = CheckedTables(_folder_of(warehouse))
    return max((last_read for _, last_read in tables.find_readers(source)), default=-1)


def _check_once(
    folder: str, sources: Iterable[Source], definitions: Iterable[Definition]
) -> Iterator[Damage]:
    """Yield the damage that one check finds.

    It opens the tables in the opposite order of their commits: a commit during the check is then
    no damage.
    """
    tables = CheckedTables(folder)
    with tables.pin_all_versions():
        ledger = tables.open_table(LEDGER)
        for definition in definitions:
            yield from AssetCheck(tables, definition).find_damage(ledger)
        yield from find_lost_results(tables, definitions)
        for source in sources:
            yield from SourceCheck(tables, source).find_damage()
        for table in SYSTEM_TABLES:
            tables.open_table(table)
    yield from tables.broken.values()


def _folder_of(warehouse: "Warehouse") -> str:
    return warehouse.path_of("").rstrip("/")
