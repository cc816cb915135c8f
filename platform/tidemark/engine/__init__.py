"""Connect to the engine: the Spark Connect server that runs all computations.

`ensure` returns the address of an engine that answers. It starts the embedded engine, unless the
setting `remote` names another one. `session` opens a new session, and `visit` uses an existing one
for a block. `status` reports the engine's state, and `stop` stops it.
"""

from tidemark.engine.connect import session, visit
from tidemark.engine.probe import Answer
from tidemark.engine.process import ManagedProcess
from tidemark.engine.queries.rules import exclude_unsafe
from tidemark.engine.server import Status, ensure, status, stop

__all__ = [
    "Answer",
    "ManagedProcess",
    "Status",
    "ensure",
    "exclude_unsafe",
    "session",
    "status",
    "stop",
    "visit",
]
