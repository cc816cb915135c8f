"""Provide the secret that the engine and its clients share."""

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from tidemark.base.files.private import make_folder
from tidemark.base.secret import read_secret_file, secret
from tidemark.base.settings import Settings

_COMMAND = "command:"
_REFERENCES = ("env:", "file:", _COMMAND)

_printed = dict[str, str]()
"""The tokens that commands have printed, by the reference."""


def token_of(settings: Settings) -> str:
    """Return the token in the settings, else the token in the home, created on first use.

    A command runs once in a process, until `renew_token`.
    """
    if settings.token is not None:
        configured = settings.token.get_secret_value()
        if configured.startswith(_COMMAND):
            if configured not in _printed:
                _printed[configured] = secret(configured).reveal()
            return _printed[configured]
        if configured.startswith(_REFERENCES):
            return secret(configured).reveal()
        return configured
    file = settings.home / "token"
    if not file.exists():
        make_folder(settings.home)
        # `mkstemp` creates a file that only its owner can read.
        descriptor, name = tempfile.mkstemp(prefix=".token-", dir=settings.home)
        scratch = Path(name)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(secrets.token_urlsafe(32))
        try:
            # Unlike a rename, a link does not replace the token of a faster process.
            with suppress(FileExistsError):
                os.link(scratch, file)
        finally:
            scratch.unlink()
    return read_secret_file(file)


def is_renewable(settings: Settings) -> bool:
    """Return whether a command prints the token, so that it can be read again."""
    token = settings.token
    return token is not None and token.get_secret_value().startswith(_COMMAND)


def renew_token(settings: Settings) -> bool:
    """Let the command of the token run again. Return False if the token is not from a command."""
    if settings.token is not None:
        _printed.pop(settings.token.get_secret_value(), None)
    return is_renewable(settings)
