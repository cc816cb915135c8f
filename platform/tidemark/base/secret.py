"""Refer to secrets by their location. Only a process that needs a secret reads the secret.

| reference | location of the secret |
| --- | --- |
| `env:NAME` | the environment variable NAME |
| `file:PATH` | a file that only its owner may read; `~` is the home of the process's user |
| `command:COMMAND` | the standard output of a command, such as `command:pass show engine` |

Definitions, settings, plans and logs contain only the reference. Only code that connects to a
server or computes tokens reads the secret.
"""

import os
import re
import shlex
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tidemark.base.arguments import check_arguments
from tidemark.base.errors import DefinitionError

_REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|(file|command):[^\0]+")
_COMMAND_SECONDS = 60
"""The longest time that a command may take."""
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, repr=False)
class Secret:
    """A reference to a secret; the object does not contain the secret itself.

    Args:
        reference: `env:NAME`, `file:PATH`, or `command:COMMAND`.

    Raises:
        DefinitionError: the reference is invalid.
    """

    reference: str

    def __post_init__(self) -> None:
        if not _REFERENCE.fullmatch(self.reference):
            # The message does not show the value, which may be the secret itself.
            raise DefinitionError(
                "A secret must be given as a reference, never as its value: secret('env:NAME') "
                "for an environment variable, secret('file:PATH') for a file, or "
                "secret('command:COMMAND') for the output of a command."
            )

    def __repr__(self) -> str:
        return f"secret({self.reference!r})"

    def reveal(self) -> str:
        """Read the secret now and return it. Final line breaks are removed, except of a variable.

        Raises:
            DefinitionError: the secret does not exist, is empty or is not text, users other than
                the owner of the secret file may access the file, or the command fails.
        """
        kind, _, location = self.reference.partition(":")
        if kind == "file":
            return read_secret_file(Path(location).expanduser())
        if kind == "command":
            return _read_output(location)
        value = os.environ.get(location)
        if not value:
            raise DefinitionError(
                f"The secret '{self.reference}' is not set: set the environment variable "
                f"{location}."
            )
        return value


@check_arguments
def secret(reference: str) -> Secret:
    """Return a secret that is read from the environment, a file or a command when it is needed.

    Example:
        secret("env:KAFKA_PASSWORD")
        secret("file:~/.tidemark-key")

    Args:
        reference: `env:NAME`, an environment variable; `file:PATH`, a file that only its owner may
            read; or `command:COMMAND`, a command that prints the secret, which no shell
            interprets. Final line breaks of the file and of the output are removed.

    Raises:
        DefinitionError: the reference is none of these.
    """
    return Secret(reference)


def read_secret_file(file: Path) -> str:
    """Return the secret that a file contains, without final line breaks."""
    try:
        content = _read_private(file).decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise DefinitionError(
            f"The secret file '{file}' is not text: it must contain only the secret, as UTF-8."
        ) from None
    if not content:
        raise DefinitionError(f"The secret file '{file}' is empty: write the secret into it.")
    return content


def _read_output(command: str) -> str:
    """Return the secret that a command prints, without final line breaks."""
    try:
        process = subprocess.run(
            shlex.split(command), capture_output=True, text=True, timeout=_COMMAND_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise DefinitionError(
            f"The secret's command '{command}' did not end within {_COMMAND_SECONDS} seconds."
        ) from None
    except (OSError, ValueError) as error:
        raise DefinitionError(
            f"The secret's command '{command}' can't be run ({error}): write the program and its "
            "arguments as in a shell, but without variables and pipes."
        ) from None
    if process.returncode != 0:
        last = "".join(process.stderr.strip().splitlines()[-1:]) or "no message"
        raise DefinitionError(
            f"The secret's command '{command}' failed with exit code {process.returncode} "
            f"({last}): "
            "run it yourself to find out why."
        )
    output = process.stdout.rstrip("\r\n")
    if not output:
        raise DefinitionError(
            f"The secret's command '{command}' prints nothing: it must print only the secret."
        )
    return output


def check_mode(file: Path) -> None:
    """Raise an error if users other than its owner may access a secret file."""
    _read_private(file)


def _read_private(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            # Check the open file: the name may refer to another file by now.
            mode = stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
            content = b"" if mode & _OTHERS else stream.read()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DefinitionError(f"The secret file '{file}' can't be read: {reason}.") from None
    if mode & _OTHERS:
        raise DefinitionError(
            f"The secret file '{file}' has the mode {mode:04o}, so other users may access it: run "
            f"`chmod 600 {file}`, and change the secret if they may have read it."
        )
    return content
