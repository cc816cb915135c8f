"""Read the parts of a home's state, of which some may be unreadable."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import pyarrow as pa
from deltalake.exceptions import DeltaError

from tidemark.base.errors import StoreError, TidemarkError
from tidemark.store.refusals import store_failure

STORE = "object store"
"""The key in `Reads.troubles` of a failure of the warehouse's object store."""

_T = TypeVar("_T")


class Reads:
    """Reads of a home, of which some may fail.

    Args:
        troubles: the errors so far, see `home_state.HomeState`.
    """

    def __init__(self, troubles: Mapping[str, str]) -> None:
        self.troubles = dict(troubles)

    def attempt(self, name: str, read: Callable[[], _T]) -> _T | None:
        """Return the result of a read. If it fails, add its error to `troubles` and return None.

        After the object store of the warehouse has failed once, nothing more is read: each request
        would wait for its retries.
        """
        if STORE in self.troubles:
            return None
        try:
            return read()
        except (DeltaError, OSError, pa.ArrowException, TidemarkError) as error:
            failed = error if isinstance(error, StoreError) else store_failure(error)
            if failed is None:
                self.troubles[name] = _first_line(error)
            else:
                self.troubles[STORE] = str(failed)
            return None


def _first_line(error: Exception) -> str:
    """Return the first line of an error's message, or the error's type."""
    return next(iter(str(error).splitlines()), type(error).__name__)
