"""Connect to the engine: the Spark Connect server that runs all computations.

`ensure_engine` returns the address of an engine that answers. It starts the embedded engine if
that is not running, unless the setting `remote` names another engine. `connect_session` opens a
new session, and `visit_session` uses an existing session for the duration of a `with` block.
`read_status` reports the state of the engine, and `stop_engine` stops the embedded engine.
"""

from tidemark.engine.connect import connect_session, visit_session
from tidemark.engine.probe import Answer
from tidemark.engine.process import ManagedProcess
from tidemark.engine.queries.rules import exclude_unsafe
from tidemark.engine.server import Status, ensure_engine, read_status, stop_engine

__all__ = [
    "Answer",
    "ManagedProcess",
    "Status",
    "connect_session",
    "ensure_engine",
    "exclude_unsafe",
    "read_status",
    "stop_engine",
    "visit_session",
]
