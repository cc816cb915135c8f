"""Provide the secret that the engine and its clients share."""

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from tidemark.base.files.private import make_folder
from tidemark.base.secret import read, secret
from tidemark.base.settings import Settings


def token_of(settings: Settings) -> str:
    """Return the token in the settings, else the token in the home, created on first use."""
    if settings.token is not None:
        given = settings.token.get_secret_value()
        return secret(given).reveal() if given.startswith("file:") else given
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
    return read(file)
