"""Translate the exception of a refused write into an error that says how to fix the cause."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from deltalake.exceptions import DeltaError
from pyspark.errors import PySparkException

from tidemark.base.errors import (
    ConflictError,
    DataError,
    HistoryExpiredError,
    StoreError,
    summarize_error,
)

_CONFLICT = (
    "CONCURRENT",
    "Concurrent",
    "PROTOCOL_CHANGED",
    "METADATA_CHANGED",
    "ALREADY_EXISTS",
    "NON_EMPTY_LOCATION",
    "MAX_COMMIT_RETRIES",
)
"""Error conditions of Spark that mean a commit conflict.

Messages are not searched: they may name a table or a path that contains any of these words.
"""
_LOST = ("Failed to commit transaction", "Tried committing existing table version")
"""How messages of delta-rs begin if another commit came first."""
_GONE = re.compile(r"error while reading file (\S+)\. File does not exist")
_STORE = re.compile(
    r"Generic (S3|GCS|MicrosoftAzure|HTTP) error|AWS Error|Object at location"
    r"|an error occurred while loading credentials|the credential provider was not enabled"
    r"|The operation lacked (the necessary privileges|valid authentication credentials)"
)
"""Matches the beginning of an object store client's message, in delta-rs or in obstore."""
_NEEDS_AWS = "needs credentials: set AWS_PROFILE or AWS_ACCESS_KEY_ID (this machine has no role)"
_UNANSWERED = ("error sending request", "Connection refused")
"""The parts of a client's message that mean that no server has answered."""
_REFUSED = {
    # These requests ask for the credentials of the machine's role.
    "/latest/api/token": _NEEDS_AWS,
    "loading credentials": _NEEDS_AWS,
    "credential provider": _NEEDS_AWS,
    "/computeMetadata/": "needs credentials: set GOOGLE_SERVICE_ACCOUNT or "
    "GOOGLE_APPLICATION_CREDENTIALS (this machine has no account)",
    "/metadata/identity/": "needs credentials: set AZURE_STORAGE_ACCOUNT_KEY (this machine has no "
    "identity)",
    "NoSuchBucket": "has no such bucket",
    "InvalidAccessKeyId": "does not know the access key",
    "SignatureDoesNotMatch": "refuses the secret key",
    "ExpiredToken": "refuses the credentials, which have expired",
    "RequestTimeTooSkewed": "refuses the clock of this machine, which is wrong",
    "AccessDenied": "denies access",
    "403 Forbidden": "denies access",
    "401 Unauthorized": "refuses the credentials",
    "404 Not Found": "has no such bucket or file",
    "error sending request": "does not answer",
    "Connection refused": "does not answer",
}
"""The meaning of a store's reply, by a part of the client's message."""
_REQUEST = re.compile(r"Error performing (GET|PUT|POST|HEAD|DELETE) ([^\s?]+)")
_REPLY = re.compile(r"status code:? (?P<status>\d{3} [A-Z][A-Za-z ]*[a-z])")
_CODE = re.compile(r"<Code>(\w+)</Code>")
STORE_ADVICE = (
    "Check the address of the store, the credentials, and that the bucket exists; the variables "
    "are in 'An object store' on the page of settings. Nothing is lost: run the command again."
)
"""The end of the message of each `StoreError` of a refused or unanswered request."""
_TERMINAL = re.compile(r"\x1b\[\d*m|↳")
"""Matches how delta-rs colors and indents the causes of an error."""
_UNWRITABLE = {
    "Permission denied": "the engine has no write permission there",
    "AccessDeniedException": "the engine has no write permission there",
    "Not a directory": "a file exists at this path",
    "Read-only file system": "the file system is read-only",
    "No space left": "the disk is full",
    "CANNOT_CREATE_LOG_PATH": "can't create a folder (read-only, or a file exists at this path)",
    "Mkdirs failed": "can't create a folder (read-only, or a file exists at this path)",
}


def changed_columns(action: str, difference: str) -> DataError:
    """Return the error for rows whose columns differ from those of their table.

    Args:
        action: the action that failed, such as "write table 'x'".
        difference: the names of the columns, or a description of the difference.
    """
    return DataError(
        f"Can't {action}: the columns of its rows differ from those of the table ({difference}). "
        "If "
        "the definition of an asset has changed, recreate its tables with `tidemark rebuild`, drop "
        "them with `tidemark drop`, or give the asset a new name."
    )


def busy_error(table: str) -> ConflictError:
    """Return the error of a writer that gives up after many commit conflicts."""
    return ConflictError(
        f"Can't write table '{table}': other writers keep changing it. Try again when they have "
        "finished."
    )


def history_expired_error(table: str, version: int) -> HistoryExpiredError:
    """Return the error for changes that are not kept any more."""
    return HistoryExpiredError(
        f"The changes of table '{table}' since version {version} are not available any more."
    )


def explain_unwritable(action: str, error: Exception) -> DataError | None:
    """Return the error for a location that can't be written; None for other errors."""
    reason = _find_reason(_UNWRITABLE, str(error))
    if reason is None:
        return None
    return DataError(f"Can't {action}: {reason}.")


def _find_reason(reasons: Mapping[str, str], text: str) -> str | None:
    """Return the first of some reasons whose sign is in a text; None if no sign is."""
    for sign, reason in reasons.items():
        if sign in text:
            return reason
    return None


@contextmanager
def translate_refusals(action: str) -> Iterator[None]:
    """Replace an exception by one of Tidemark's errors if a user can fix its cause.

    Args:
        action: the action in the `with` block, which completes "Can't …".
    """
    try:
        yield
    except (PySparkException, DeltaError, OSError) as error:
        explained = store_failure(error) or explain_unwritable(action, error)
        if explained is not None:
            raise explained from error
        if is_conflict(error):
            raise ConflictError(
                f"Can't {action}: another run wrote it at the same time. Run the command again."
            ) from error
        text = str(error)
        if "schema mismatch" in text or "FAILED_TO_MERGE_FIELDS" in text:
            raise changed_columns(action, summarize_error(error)) from error
        missing = _GONE.search(text)
        if missing is not None:
            raise DataError(
                f"Can't {action}: the file '{missing[1]}' was deleted. Restore it from a backup. "
                "If it belongs to a lookup table, VACUUM deleted a version that arrivals recorded: "
                "vacuum that table with a longer retention."
            ) from error
        raise


def store_failure(error: Exception) -> StoreError | None:
    """Return the error for an exception of an object store's client; None for other exceptions."""
    if not isinstance(error, DeltaError | OSError):
        return None
    text = " ".join(_TERMINAL.sub("", str(error)).split())
    match = _STORE.search(text)
    # A store also refuses the second of two conflicting commits, which is not its failure.
    if match is None or is_conflict(error):
        return None
    reason = _find_reason(_REFUSED, text)
    reply = _describe_reply(text[match.start() :])
    return StoreError(
        f"The object store {reason or 'failed'}: {reply}. {STORE_ADVICE}",
        retriable=reason is None or any(sign in text for sign in _UNANSWERED),
    )


def _describe_reply(text: str) -> str:
    """Summarize an object store's reply in one line, from the message of the store's client.

    Return for example `GET https://host/bucket/key: 403 Forbidden (AccessDenied)`. If the message
    does not name a request and a status, return its first 200 characters.

    Args:
        text: the message, which may contain the XML of the reply.
    """
    request = _REQUEST.search(text)
    reply = _REPLY.search(text)
    code = _CODE.search(text)
    if request is None or reply is None:
        return text[:200].rstrip(".")
    shown = f"{request[1]} {request[2]}: {reply['status']}"
    if code is None:
        return shown
    return f"{shown} ({code[1]})"


def is_conflict(error: Exception) -> bool:
    """Return whether an error means that another commit came first.

    A Spark error is recognized by its error condition, not by its message, which may contain any
    name. Errors of delta-rs have no condition, so the beginning of their message is compared.
    """
    if isinstance(error, PySparkException):
        # The message of an exception without a condition begins with its Java class.
        kind = error.getCondition() or str(error).partition(" ")[0]
        return any(sign in kind for sign in _CONFLICT)
    return isinstance(error, DeltaError) and str(error).startswith(_LOST)
