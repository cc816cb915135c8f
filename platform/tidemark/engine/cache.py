"""Where what is fetched or made once for all homes is kept: jars, and the archive of classes.

A checkout keeps it beside itself, in `.engine`, so that it goes with the checkout. An installed
Tidemark has no folder of its own to write in, and keeps it in the user's caches: in `tidemark` of
`XDG_CACHE_HOME`, which is `~/.cache` unless set. All of it may be deleted: it is fetched, or made,
again.
"""

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]


def folder(name: str) -> Path:
    """The folder of that name, which need not be there yet."""
    return place(_ROOT, os.environ) / name


def own_folder(name: str) -> Path:
    """The folder of that name for this Python environment alone."""
    if is_checkout(_ROOT):
        return folder(name)
    return folder(name) / hashlib.sha256(sys.prefix.encode()).hexdigest()[:12]


def place(root: Path, environ: Mapping[str, str]) -> Path:
    """Where all these folders are.

    Args:
        root: the folder that holds `platform/` in a checkout, and something else elsewhere.
    """
    if is_checkout(root):
        # Working trees of one checkout may share it by a link: the archive of classes is of the
        # jars' true paths.
        return (root / ".engine").resolve()
    # A relative path is none, as the specification of the variable has it.
    caches = Path(environ.get("XDG_CACHE_HOME", ""))
    return (caches if caches.is_absolute() else Path("~/.cache").expanduser()) / "tidemark"


def in_checkout() -> bool:
    """Return whether this Tidemark runs from a checkout, and not from an installed package."""
    return is_checkout(_ROOT)


def is_checkout(root: Path) -> bool:
    """Whether a folder is a checkout, which `tools/setup` sets up."""
    return (root / "tools" / "setup").is_file()
