"""Check optional dependencies (extras), which are installed as in `pip install 'tidemark[marts]'`.

The packages of an extra come from the metadata of the installed Tidemark.
"""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

from tidemark.base.errors import MissingDependencyError

_OWN = "tidemark"


def require_extra(extra: str, *packages: str) -> None:
    """Raise an error if packages of an extra are missing.

    Args:
        packages: the packages of the extra to check. Without any, all packages of the extra are
            checked.
    """
    absent = [name for name in missing_packages(extra) if not packages or name in packages]
    if absent:
        further = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        raise MissingDependencyError(
            f"This needs packages that are not installed: '{absent[0]}'{further}. Install them "
            f"with `pip install '{_OWN}[{extra}]'`."
        )


def missing_packages(extra: str) -> list[str]:
    """Return the packages of an extra that are not installed."""
    return [name for name in _read_packages(extra) if not _is_installed(name)]


def _read_packages(extra: str) -> Iterator[str]:
    for text in requires(_OWN) or ():
        requirement = Requirement(text)
        if requirement.marker is not None and requirement.marker.evaluate({"extra": extra}):
            yield requirement.name


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True
