"""Tests of users' transforms: a small engine, given arrivals, and what comes out in any cut.

`Trials` is what the fixture `tidemark_scenario` gives, `Trial` one run of it: names for the types
of tests. `plugin` has the fixtures and is all that needs pytest; a project that uses none of them
pays nothing for it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemark_streaming.testing.trial import Trial, Trials

__all__ = ["Trial", "Trials"]


def __getattr__(name: str) -> object:
    # pytest loads the plugin, and with it this package, wherever Tidemark is installed: what the
    # names stand for is imported by who asks for them.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tidemark_streaming.testing import trial

    return getattr(trial, name)
