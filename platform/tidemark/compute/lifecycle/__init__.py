"""Lifecycles: how windows are created, fire, and change.

| windows | lifecycle |
| --- | --- |
| with fixed bounds, which depend on time alone | `aligned`, which uses slots |
| sessions, which grow while a key keeps receiving events | `session`, which merges fragments |

Both modules have the same functions, from DataFrame to DataFrame, which `aligned` describes;
`lifecycle` chooses the module for a transform's windows. Functions that only sessions need are
called by `run/compute`.
"""

from tidemark.compute.lifecycle import aligned, session
from tidemark.define.definition import Definition


def lifecycle(transform: Definition):  # noqa: ANN201 (a module; type checkers infer which)
    return session if transform.window.merges else aligned
