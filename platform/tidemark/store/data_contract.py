"""Export the data contract of an asset, for catalogs and programs that read its table."""

from collections.abc import Sequence

import yaml

from tidemark.base.arguments import check_arguments
from tidemark.base.errors import DataError
from tidemark.base.settings import Settings
from tidemark.define.contract.document import describe_contract
from tidemark.define.definition import Definition
from tidemark.define.window_columns import published_columns
from tidemark.store.published import read
from tidemark.store.rows import spark_schema


@check_arguments
def export_contract(
    asset: Definition, *, owners: Sequence[str] = (), settings: Settings | None = None
) -> str:
    """Return the data contract of an asset, as YAML of the Open Data Contract Standard 3.1.

    The contract has the columns of the published table with their types, the expectations as
    quality rules, and the event time, window and lateness of the definition. Before the first run,
    a column whose type the definition does not determine has none. The engine is not needed.

    Example:
        print(export_contract(visits_hourly, owners=["team:web"]))

    Args:
        owners: those who answer for the table: email addresses, or teams as `team:<name>`.
        settings: the settings of the project; by default, those of this process.

    Raises:
        StoreError: the object store has refused the access.
    """
    settings = settings or Settings()
    types = published_columns(asset)
    # The table knows the types that only a run determines.
    existing_types = _read_types(asset, settings)
    for column in types:
        types[column] = existing_types.get(column, types[column])
    path = f"{settings.warehouse}/{settings.database}/{asset.published_table}"
    contract = describe_contract(asset, settings.database, path, types, owners)
    return yaml.safe_dump(contract, sort_keys=False, allow_unicode=True, width=100)


def _read_types(asset: Definition, settings: Settings) -> dict[str, str]:
    """Return the types of the published table's columns; empty before the first run."""
    try:
        table = read(asset.published_table, settings=settings)
    except DataError:
        return {}
    fields = spark_schema(table.schema()).fields
    return {field.name: field.dataType.simpleString() for field in fields}
