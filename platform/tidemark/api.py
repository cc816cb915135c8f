"""The names that users of Tidemark get from `import tidemark as tm`.

Connectors, sinks and record formats are in `tidemark.connectors`, tests of transforms in
`tidemark.testing`, and functions for Dagster in `tidemark.dagster`.
"""

from tidemark import agg, expect
from tidemark.base.errors import (
    ConflictError,
    DataError,
    DefinitionChangedError,
    DefinitionError,
    EngineError,
    EngineLostError,
    MissingDependencyError,
    StoreError,
    TidemarkError,
)
from tidemark.base.secret import Secret, secret
from tidemark.base.settings import Settings
from tidemark.define.definition import Definition
from tidemark.define.derived.asof_join import asof_join
from tidemark.define.derived.chain import chain
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.join import Between, join
from tidemark.define.derived.row_asset import row_asset
from tidemark.define.derived.union import union
from tidemark.define.protection import Drop, Mask, Tokenize
from tidemark.define.rollup import RollUp, rollup
from tidemark.define.source import Source
from tidemark.define.sql.sql_asset import sql_asset
from tidemark.define.transform import WindowedTransform, windowed_asset
from tidemark.define.triggers.trigger import Count, EachArrival, Every, Never, Trigger
from tidemark.define.uniqueness import Deduplicate
from tidemark.define.watermarks import (
    BoundedOutOfOrderness,
    Manual,
    MonotonicTimestamps,
    Perfect,
    PerPartition,
    Punctuated,
    Watermark,
    forward,
)
from tidemark.define.windows import Calendar, Cumulating, Global, Session, Sliding, Tumbling, Window
from tidemark.store.data_contract import export_contract
from tidemark.store.published import read
from tidemark.store.warehouse import Warehouse

__all__ = [
    "Between",
    "BoundedOutOfOrderness",
    "Calendar",
    "ConflictError",
    "Count",
    "Cumulating",
    "DataError",
    "Deduplicate",
    "Definition",
    "DefinitionChangedError",
    "DefinitionError",
    "DerivedSource",
    "Drop",
    "EachArrival",
    "EngineError",
    "EngineLostError",
    "Every",
    "Global",
    "Manual",
    "Mask",
    "MissingDependencyError",
    "MonotonicTimestamps",
    "Never",
    "PerPartition",
    "Perfect",
    "Punctuated",
    "RollUp",
    "Secret",
    "Session",
    "Settings",
    "Sliding",
    "Source",
    "StoreError",
    "TidemarkError",
    "Tokenize",
    "Trigger",
    "Tumbling",
    "Warehouse",
    "Watermark",
    "Window",
    "WindowedTransform",
    "agg",
    "asof_join",
    "chain",
    "expect",
    "export_contract",
    "forward",
    "join",
    "read",
    "rollup",
    "row_asset",
    "secret",
    "sql_asset",
    "union",
    "windowed_asset",
]
