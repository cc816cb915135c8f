"""Recognize the addresses of folders in object stores."""

import re

ADDRESS_FORM = (
    "an address of s3://, s3a://, gs://, az://, abfss:// or abfs://, without '//', '.' and '..' as "
    "parts of its path,"
)
"""The addresses that are allowed, for messages."""

_PART = r"/(?!\.{1,2}(/|$))[^/]+"
"""Matches a part of a path. Clients of object stores refuse `.`, `..`, and empty parts."""

_ADDRESS = re.compile(rf"(s3a?|gs|az|abfss?)://[^/\s]+({_PART})*/*")


def is_address(location: str) -> bool:
    """Return whether a place is an address, and not a path on this machine.

    Raises:
        ValueError: the address is not one of an object store.
    """
    if "://" not in location:
        return False
    if _ADDRESS.fullmatch(location) is None:
        raise ValueError(f"it must be {ADDRESS_FORM} such as s3://bucket/folder")
    return True
