"""Parameters that only `make test-nightly` runs."""

from collections.abc import Iterable
from typing import Any

import pytest

NIGHTLY = [pytest.mark.slow, pytest.mark.nightly]
"""The marks of a parameter that only `make test-nightly` runs, of a test that is otherwise fast."""


def mostly_nightly(values: Iterable[Any], usual: int = 1) -> list[Any]:
    """Return values for `parametrize`; all but the first `usual` get the marker `nightly`.

    Args:
        values: values, or tuples for several parameters.
    """
    found = [value if isinstance(value, tuple) else (value,) for value in values]
    nightly = pytest.mark.nightly
    return [pytest.param(*v, marks=[] if n < usual else nightly) for n, v in enumerate(found)]
