"""The Spark Connect server that computes everything, and the way to a session on it.

`ensure` gives the address of an engine that answers, and starts the embedded one where none is
set by `remote`; `session` opens a session on it, `visit` looks into one that stays; `status` and
`stop` say what it does and end it.
"""

from tidemark.engine.connect import session, visit
from tidemark.engine.probe import Answer
from tidemark.engine.process import Managed
from tidemark.engine.rules import exclude_unsafe
from tidemark.engine.server import Status, ensure, status, stop

__all__ = [
    "Answer",
    "Managed",
    "Status",
    "ensure",
    "exclude_unsafe",
    "session",
    "status",
    "stop",
    "visit",
]
