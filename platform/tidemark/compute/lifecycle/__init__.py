"""Lifecycles: how windows are created, fire, and change.

| windows | lifecycle |
| --- | --- |
| with fixed bounds, which depend on time alone | `aligned`, which uses slots |
| sessions, which grow while a key keeps receiving events | `session`, which merges fragments |

Both modules have the same functions from DataFrame to DataFrame; `aligned` documents them.
`choose_lifecycle` returns the module for a transform's windows. `session` has further functions,
which only sessions need; `run.compute` calls these directly.
"""

from tidemark.compute.lifecycle import aligned, session
from tidemark.define.definition import Definition


def choose_lifecycle(definition: Definition):  # noqa: ANN201 (a module; type checkers infer which)
    return session if definition.window.merges else aligned
