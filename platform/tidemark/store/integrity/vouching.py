"""Record in a commit the versions and the data files of the tables that it depends on.

Each is a Delta transaction of the commit. The application id of the transaction names the table.
"""

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from tidemark.define.source import Source

if TYPE_CHECKING:
    from tidemark.store.warehouse import Warehouse

STATE_APP = "state"
"""The application id of a state's commits."""

ERASURES_APP = "erasures"
"""The application id that counts the erasures of an event log."""

_DIGEST_BYTES = 7
"""The size of a digest, which must fit into the positive numbers of a transaction's version."""


def ingest_app(source: Source) -> str:
    """Return the application id of the commits to a source's tables."""
    return f"{source.name}_ingest"


def arrivals_app(source: Source) -> str:
    """Return the application id under which a table's commits record the newest arrival they read.

    The tables are the states of assets, and the timelines of derived sources.
    """
    return f"arrivals of {source.name}"


def replaced_app(source: Source) -> str:
    """Return the application id under which a source's event log records replaced arrivals.

    The number is that of the newest arrival that had been read when an ingest began. If the
    timeline lacked it, its rows did not exist any more, either: rows under this number that are
    written later are those of another arrival.
    """
    return f"{ingest_app(source)} replaced"


def erasure_app(erasure: str) -> str:
    """Return the application id of an erasure's commits.

    The erasure commits version 0. A commit that replaces all rows of a table later records version
    1: the erasure then no longer explains why the table has fewer rows than its timeline records.

    Args:
        erasure: the identity of the erasure.
    """
    return f"erasure/{erasure}"


def version_app(app: str, table: str) -> str:
    """Return the application id with which a commit records the version of a table."""
    return f"{app} {table}"


def files_app(app: str, table: str) -> str:
    """Return the application id with which a commit records the digest of a table's files."""
    return f"{app} {table} files"


def vouched_versions(warehouse: "Warehouse", app: str, tables: Iterable[str]) -> dict[str, int]:
    """Return the versions of tables that a commit of this thread can vouch for.

    The keys are the application ids under which the commit records the versions. The values are
    the newest versions that the thread has seen, and the digests of their files. Tables that the
    thread has not seen are left out.
    """
    recorded = dict[str, int]()
    for table in tables:
        opened = warehouse.find_opened(table)
        if opened is not None:
            recorded[version_app(app, table)] = opened.version()
            recorded[files_app(app, table)] = digest_files(opened)
    return recorded


def digest_files(opened: DeltaTable) -> int:
    """Return a number that identifies the data files of a version of a table.

    The number depends on the names of the files, which are unique, and not on the location.
    """
    names = sorted(uri.rpartition("/")[2] for uri in opened.file_uris())
    digest = hashlib.blake2b("\n".join(names).encode(), digest_size=_DIGEST_BYTES)
    return int.from_bytes(digest.digest(), "big")
