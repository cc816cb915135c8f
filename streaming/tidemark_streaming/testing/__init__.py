"""Test support for transforms: run a transform over given arrivals, with a small engine.

The arrivals can be processed in one run, or divided into several runs.

The fixture `tidemark_scenario` returns a `Trials` object, and a call of that object returns a
`Trial`. Tests use both names as types. Only the module `plugin`, which has the fixtures, needs
pytest, so a project that does not use the fixtures can do without pytest.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemark_streaming.testing.trial import Trial, Trials

__all__ = ["Trial", "Trials"]


def __getattr__(name: str) -> object:
    # pytest loads the plugin, and with it this package, in every environment with Tidemark
    # installed. The classes are therefore imported on first use.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tidemark_streaming.testing import trial

    return getattr(trial, name)
