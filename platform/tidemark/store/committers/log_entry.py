"""Identify a version of a Delta table, by its entry in the transaction log or by its data files.

The number of a version identifies it only within one history of the table: after the table was
restored from a copy, other commits get the same numbers. The bytes of the log entry differ, because
they contain the commit's time and the names of its files. Any Delta table has these entries,
whichever program writes it.
"""

import hashlib

from deltalake import DeltaTable

from tidemark.store.committers.file_systems import file_system

_DIGEST_BYTES = 7
"""The size of a digest, which must fit into the positive numbers of a transaction's version."""


def version_id(path: str, version: int) -> str | None:
    """Return the identity of a version: sixteen hexadecimal digits.

    Return None if the transaction log does not have the version, or no longer has its entry.

    Args:
        path: the table.
    """
    system, folder = file_system(path)
    try:
        with system.open_input_file(f"{folder}/_delta_log/{version:020}.json") as entry:
            return hashlib.sha256(entry.read()).hexdigest()[:16]
    except FileNotFoundError:
        return None


def digest_files(opened: DeltaTable) -> int:
    """Return a number that identifies the data files of a version of a table.

    The number depends on the names of the files, which are unique, and not on the location.
    """
    names = sorted(uri.rpartition("/")[2] for uri in opened.file_uris())
    digest = hashlib.blake2b("\n".join(names).encode(), digest_size=_DIGEST_BYTES)
    return int.from_bytes(digest.digest(), "big")
