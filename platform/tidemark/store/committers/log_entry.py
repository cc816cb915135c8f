"""Identify a version of a Delta table by its entry in the transaction log.

The number of a version identifies it only within one history of the table: after the table was
restored from a copy, other commits get the same numbers. The bytes of the log entry differ, because
they contain the commit's time and the names of its files. Any Delta table has these entries,
whichever program writes it.
"""

import hashlib

from tidemark.store.committers.file_systems import file_system


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
