"""What a user can mend when a write is refused, in one sentence, whoever commits."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from deltalake.exceptions import DeltaError
from pyspark.errors import PySparkException

from tidemark.base.errors import ConflictError, DataError, HistoryGone, StoreError

_CONFLICT = (
    *("CONCURRENT", "Concurrent", "PROTOCOL_CHANGED", "METADATA_CHANGED", "ALREADY_EXISTS"),
    *("NON_EMPTY_LOCATION", "MAX_COMMIT_RETRIES"),
)
"""In what the engine calls a conflict; its message may name a table or a path with any word."""
_LOST = ("Failed to commit transaction", "Tried committing existing table version")
"""How delta-rs begins where another commit came first."""
_GONE = re.compile(r"error while reading file (\S+)\. File does not exist")
_STORE = re.compile(r"Generic (S3|GCS|MicrosoftAzure|HTTP) error|AWS Error|Object at location")
"""How the clients of object stores, delta-rs's and Arrow's, begin."""
_REFUSED = {
    "NoSuchBucket": "has no such bucket",
    "InvalidAccessKeyId": "does not know the access key",
    "SignatureDoesNotMatch": "refuses the secret key",
    "AccessDenied": "denies access",
    "403 Forbidden": "denies access",
    "ACCESS_DENIED": "denies access",
    "error sending request": "does not answer",
    "NETWORK_CONNECTION": "does not answer",
    "Connection refused": "does not answer",
}
_UNWRITABLE = {
    "Permission denied": "the engine may not write there",
    "AccessDeniedException": "the engine may not write there",
    "Not a directory": "a file is in the way",
    "Read-only file system": "the file system is read-only",
    "No space left": "the disk is full",
    "CANNOT_CREATE_LOG_PATH": "no folder can be made there (read-only, or a file is in the way)",
    "Mkdirs failed": "no folder can be made there (read-only, or a file is in the way)",
}


def changed_columns(table: str) -> DataError:
    """The sentence for rows whose columns are not those of their table."""
    return DataError(
        f"Can't write table '{table}': its columns are not those of the definition any more; make "
        "the asset anew by `tidemark rebuild`, give it a new name, or drop it with its tables by "
        "`tidemark drop`."
    )


def history_gone(table: str, version: int) -> HistoryGone:
    """The sentence for changes that nobody kept."""
    return HistoryGone(f"What changed in table '{table}' since version {version} is gone.")


def unwritable(what: str, error: Exception) -> DataError | None:
    """The sentence for a place that can't be written; None where an error says something else."""
    text = str(error)
    reason = next((reason for sign, reason in _UNWRITABLE.items() if sign in text), None)
    return None if reason is None else DataError(f"Can't {what}: {reason}.")


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn refusals that a user can mend into one sentence."""
    try:
        yield
    except (PySparkException, DeltaError, OSError) as error:
        text = str(error)
        if failed := store_failure(error):
            raise failed from error
        if refused := unwritable(what, error):
            raise refused from error
        if conflicts(error):
            raise ConflictError(f"Can't {what}: another run wrote it at the same time.") from error
        if "schema mismatch" in text or "FAILED_TO_MERGE_FIELDS" in text:
            raise changed_columns(what.removeprefix("write table ").strip("'")) from error
        if gone := _GONE.search(text):
            raise DataError(
                f"Can't {what}: the file '{gone[1]}' is gone, which it reads; a reference keeps "
                "the versions that arrivals recorded only while nobody vacuums them away."
            ) from error
        raise


def store_failure(error: Exception) -> StoreError | None:
    """Return the message for what an object store's client raises; None for another error."""
    text = str(error)
    found = _STORE.search(text) if isinstance(error, DeltaError | OSError) else None
    if found is None or conflicts(error):
        return None
    reason = next((reason for sign, reason in _REFUSED.items() if sign in text), None)
    said = " ".join(text[found.start() :].split())[:200].rstrip(".")
    return StoreError(
        f"The object store {reason or 'failed'}: {said}. Check its address (AWS_ENDPOINT_URL), the "
        "credentials, and that the bucket exists; nothing is lost, so run the command again.",
        passing=reason is None or "not answer" in reason,
    )


def conflicts(error: Exception) -> bool:
    """Whether another commit came first, by what an error is, and not by what it speaks of."""
    if isinstance(error, PySparkException):
        # Without a condition it begins with its class.
        kind = error.getCondition() or str(error).partition(" ")[0]
        return any(sign in kind for sign in _CONFLICT)
    return isinstance(error, DeltaError) and str(error).startswith(_LOST)
