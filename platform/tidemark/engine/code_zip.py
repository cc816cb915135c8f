"""Collect the code that an engine elsewhere needs in its Python: the project's and Tidemark's.

The same code always results in the same zip file. Its name contains the hash of its contents.
"""

import hashlib
import io
import zipfile
from collections.abc import Iterator, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import find_spec
from pathlib import Path

from tidemark.base.errors import DefinitionError
from tidemark.base.project import find_modules
from tidemark.base.sent_code import SentCode

_TIDEMARK = ("tidemark", "tidemark_streaming", "tidemark_assets")
_COMPILED = (".pyc", *EXTENSION_SUFFIXES)
"""The endings of files that another machine's Python, or Python in a zip file, does not import."""

_LARGEST_BYTES = 64_000_000
"""The largest size of the files. Spark accepts at most 128 MB in the message with a stream."""


_FAST = 1
"""The compression level."""


def zip_code(domains: Sequence[str]) -> SentCode:
    """Return the packages of domains, those in the project's folder, and Tidemark's.

    Their files with data are included, and compiled files are not.

    Args:
        domains: the names of modules with definitions.

    Raises:
        DefinitionError: a domain does not exist, or the files are too large.
    """
    names = {name for name in _TIDEMARK if find_spec(name) is not None}
    names.update(find_modules())
    names.update(domain.partition(".")[0] for domain in domains)
    files = dict[str, Path]()
    for name in sorted(names):
        files |= _find_files(_find_module_spec(name))
    size = sum(path.stat().st_size for path in files.values())
    if size > _LARGEST_BYTES:
        largest = max(files.values(), key=lambda path: path.stat().st_size)
        raise DefinitionError(
            f"The code for the engine has {size:,} bytes, and at most {_LARGEST_BYTES:,} can be "
            f"sent. The largest file is {largest}: keep data outside of your packages."
        )
    return _write_zip(files)


def _find_module_spec(name: str) -> ModuleSpec:
    spec = find_spec(name)
    if spec is None:
        raise DefinitionError(
            f"There is no package '{name}' that could be sent to the engine: correct the setting "
            "domains, or run the command in your project's folder."
        )
    return spec


def _find_files(spec: ModuleSpec) -> dict[str, Path]:
    """Return the files of a package or module, by their names in the zip file."""
    if spec.submodule_search_locations is None:
        file = Path(spec.origin or "")
        if _is_sent(file):
            return {file.name: file}
        return {}
    files = dict[str, Path]()
    for location in spec.submodule_search_locations:
        folder = Path(location)
        for file in _files_below(folder):
            files[f"{spec.name}/{file.relative_to(folder).as_posix()}"] = file
    return files


def _files_below(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and _is_sent(path))


def _is_sent(file: Path) -> bool:
    return not file.name.endswith(_COMPILED)


def _write_zip(files: dict[str, Path]) -> SentCode:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, path in files.items():
            # An entry without a time: the same code must have the same hash.
            entry = zipfile.ZipInfo(name)
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED, _FAST)
    content = buffer.getvalue()
    return SentCode(f"tidemark-code-{hashlib.sha256(content).hexdigest()[:16]}.zip", content)
