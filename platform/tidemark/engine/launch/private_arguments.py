"""Pass settings to the engine in files that only their owner can read.

Settings may contain secrets, for example passwords and keys of an object store, and every user of a
machine can read the command lines of all processes. The engine's command line therefore has only
the names of two files: Spark's properties, and the arguments of Java.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

_PROPERTIES = "engine.properties"
_ARGUMENTS = "engine.arguments"
_SPECIAL = re.compile(r"[\\:=#!\s]")
"""The characters with a meaning in Java's format of properties."""

_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def write_properties(folder: Path, conf: Mapping[str, object]) -> Path:
    """Write Spark's properties, and return the file."""
    lines = [
        f"{_escape_property(name)}={_escape_property(str(value))}\n" for name, value in conf.items()
    ]
    return _write_private(folder / _PROPERTIES, "".join(lines))


def write_arguments(folder: Path, arguments: Iterable[str]) -> Path:
    """Write arguments of `java`, and return the file, which `java @FILE` reads."""
    return _write_private(
        folder / _ARGUMENTS, "".join(f"{_quote_argument(part)}\n" for part in arguments)
    )


def _escape_property(text: str) -> str:
    return _SPECIAL.sub(lambda special: _ESCAPES.get(special[0], f"\\{special[0]}"), text)


def _quote_argument(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    for special, escape in _ESCAPES.items():
        escaped = escaped.replace(special, escape)
    return f'"{escaped}"'


def _write_private(file: Path, text: str) -> Path:
    # A file of an earlier server may have another mode.
    file.unlink(missing_ok=True)
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    return file
