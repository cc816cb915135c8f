"""Verify conditional writes: a store must refuse to create a file that exists.

A local disk refuses. An object store refuses if its client in delta-rs uses conditional writes:
delta-rs creates the key of each commit with `If-None-Match: *`, and takes a refusal to mean that
another writer has made this commit. A store that ignores the header overwrites commits that were
reported as done.

So before the first table of a database in an object store is created, several writers create the
same table there at the same time. All writers see that the table does not exist. Their requests
have different lengths, so a longer request ends after a shorter one has created the key. The store
must refuse at least one writer. A store that ignores the header never refuses any.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier
from uuid import uuid4

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError

from tidemark.base.errors import StoreError
from tidemark.store.committers.client_options import client_options
from tidemark.store.committers.file_systems import file_system
from tidemark.store.refusals import is_conflict

FIRST_COMMIT = CommitProperties(max_commit_retries=0)
"""The properties of the commit that creates a table.

By default, delta-rs (1.6) retries the creation of a table that another writer has just created. The
retry succeeds as the table's second commit, and gives the table another identity.
"""

_DISABLED = "AWS_CONDITIONAL_PUT"
"""The environment variable that turns off conditional writes in delta-rs's client."""

ROUNDS = 10
"""Number of rounds after which a store that has never refused a writer fails the check.

A round without a refusal proves nothing: a writer may start so late that it sees the table of
another one, or so early that the store checks before any table exists.
"""

_SCHEMES = ("file", "s3", "s3a", "gs", "abfs", "abfss")

_COMMENTS = ["x" * size for size in (0, 200_000, 400_000, 800_000)]
"""The table comments, one for each writer. A longer comment makes a longer request."""

_SCHEMA = pa.schema({"n": pa.int64()})


def check_allowed(address: str) -> None:
    """Raise an error if a store's client does not use conditional writes."""
    scheme, is_address, _ = address.partition(":/")
    if is_address and scheme not in _SCHEMES:
        raise StoreError(
            f"Tidemark can't commit safely to '{address}': a commit must not overwrite another "
            "one, "
            f"which Tidemark can't ensure for {scheme}://. Use a folder on a disk, or a bucket of "
            "s3://, gs:// or abfss://."
        )
    if "://" in address and os.environ.get(_DISABLED, "").lower() == "disabled":
        raise StoreError(
            f"{_DISABLED}=disabled turns off the conditional writes on which commits to "
            f"'{address}' "
            "rely: a commit could overwrite another one. Unset it. If the store lacks conditional "
            "writes, use another store."
        )


def prove_conditional_writes(address: str) -> None:
    """Raise an error if a store does not refuse to create a key that exists."""
    folder = f"{address}/_probe-{uuid4().hex}"
    try:
        for number in range(ROUNDS):
            if _refuses_existing_key(f"{folder}/{number}"):
                return
        raise StoreError(
            f"The object store of '{address}' ignores the condition of a write (If-None-Match): a "
            "second writer could overwrite an existing key, so commits would be lost. Use a store "
            "that supports conditional writes, such as Amazon S3, Google Cloud Storage or Azure, "
            "or a folder on a disk."
        )
    finally:
        system, path = file_system(folder)
        with suppress(OSError):
            system.delete_dir(path)


def _refuses_existing_key(path: str) -> bool:
    start = Barrier(len(_COMMENTS))
    with ThreadPoolExecutor(len(_COMMENTS)) as pool:
        tries = [pool.submit(_is_refused, path, comment, start) for comment in _COMMENTS]
        return max(attempt.result() for attempt in tries)


def _is_refused(path: str, comment: str, start: Barrier) -> bool:
    start.wait()
    try:
        DeltaTable.create(
            path,
            _SCHEMA,
            mode="error",
            description=comment,
            storage_options=client_options(path),
            commit_properties=FIRST_COMMIT,
        )
    except DeltaError as error:
        if is_conflict(error):
            return True
        if "already exists" not in str(error):
            raise
    return False
