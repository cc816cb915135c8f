"""Secrets: said where they are, and read there by the process that needs them, when it does.

| reference | where the secret is |
| --- | --- |
| `env:NAME` | the variable NAME of the environment |
| `file:PATH` | a file that its owner alone may read; `~` is the owner's home |

Definitions, settings, plans and logs have the reference; nothing but what connects, or computes
tokens, has the secret.
"""

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from tidemark.base.errors import DefinitionError

_REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:[^\0]+")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, repr=False)
class Secret:
    """A secret, by where it is; a copy of this object has no more of it.

    Args:
        reference: `env:NAME` or `file:PATH`.

    Raises:
        DefinitionError: a reference that is none.
    """

    reference: str

    def __post_init__(self) -> None:
        if not _REFERENCE.fullmatch(self.reference):
            # What was given may be the secret itself.
            raise DefinitionError(
                "A secret is given by where it is, as secret('env:NAME') for a variable of the "
                "environment or secret('file:PATH') for a file, never by its value."
            )

    def __repr__(self) -> str:
        return f"secret({self.reference!r})"

    def reveal(self) -> str:
        """The secret, as it is there now; of a file, without the end of its last line.

        Raises:
            DefinitionError: it is not there, or a file of it may be read by others.
        """
        kind, _, place = self.reference.partition(":")
        if kind == "file":
            return read(Path(place).expanduser())
        found = os.environ.get(place)
        if not found:
            raise DefinitionError(
                f"The secret '{self.reference}' is not there: set the variable {place} of the "
                "environment."
            )
        return found


def secret(reference: str) -> Secret:
    """A secret that is taken from the environment or a file when it is needed.

    Example:
        secret("env:KAFKA_PASSWORD")
        secret("file:~/.tidemark-key")

    Args:
        reference: `env:NAME`, a variable of the environment; or `file:PATH`, a file that its owner
            alone may read, without the end of its last line.

    Raises:
        DefinitionError: a reference that is neither `env:NAME` nor `file:PATH`.
    """
    return Secret(reference)


def read(file: Path) -> str:
    """The secret that a file holds, without the end of its last line.

    Raises:
        DefinitionError: it can't be read, is empty, or others than its owner may read it.
    """
    try:
        found = _private(file).decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise DefinitionError(f"The secret file '{file}' is not text.") from None
    if not found:
        raise DefinitionError(f"The secret file '{file}' is empty.")
    return found


def check_mode(file: Path) -> None:
    """Refuse a secret file that others than its owner may use.

    Raises:
        DefinitionError: they may, or it can't be read.
    """
    _private(file)


def _private(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            # Of the file that is open: another may have its name by now.
            mode = stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
            content = b"" if mode & _OTHERS else stream.read()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DefinitionError(f"The secret file '{file}' can't be read: {reason}.") from None
    if mode & _OTHERS:
        raise DefinitionError(
            f"The secret file '{file}' has the mode {mode:04o}, so others than its owner may use "
            f"it: `chmod 600 {file}`, and change the secret if they may have read it."
        )
    return content
