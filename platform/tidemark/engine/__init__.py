"""Connect to the engine: the Spark Connect server that runs all computations.

`ensure` returns the address of an engine that answers. It starts the embedded engine if that is not
running, unless the setting `remote` names another engine. `session` opens a new session, and
`visit` uses an existing session for the duration of a `with` block. `status` reports the state of
the engine, and `stop` stops the embedded engine.
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
