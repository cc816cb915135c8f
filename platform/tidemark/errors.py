"""Errors: what a user can do wrong or meet, each one clear sentence.

The command line prints the sentence without a trace, and ends with exit code 2. Anything that is no
`TidemarkError` is a fault of Tidemark, and keeps its trace.
"""

from tidemark.base.errors import (
    ConflictError,
    DataError,
    DefinitionChanged,
    DefinitionError,
    EngineError,
    NotInstalled,
    StoreError,
    TidemarkError,
)

__all__ = [
    "ConflictError",
    "DataError",
    "DefinitionChanged",
    "DefinitionError",
    "EngineError",
    "NotInstalled",
    "StoreError",
    "TidemarkError",
]
