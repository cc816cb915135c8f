"""Test a transform with given arrivals: `from tidemark.testing import Trials`.

The fixture `tidemark_scenario`, which every project with pytest has, returns a `Trials` object.
"""

from tidemark_streaming.testing.trial import Trial, Trials

__all__ = ["Trial", "Trials"]
