"""Errors that a user can cause or encounter, each with a clear message.

The command line prints the message without a traceback and exits with code 2. An exception that is
not a `TidemarkError` is a bug in Tidemark and keeps its traceback.
"""

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

__all__ = [
    "ConflictError",
    "DataError",
    "DefinitionChangedError",
    "DefinitionError",
    "EngineError",
    "EngineLostError",
    "MissingDependencyError",
    "StoreError",
    "TidemarkError",
]
