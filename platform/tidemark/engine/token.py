"""The secret that the engine and its clients share."""

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from tidemark.base.private import make_folder
from tidemark.base.secret import read, secret
from tidemark.base.settings import Settings


def token_of(settings: Settings) -> str:
    """The token of the settings, else that of the home, which is made on first use.

    Raises:
        DefinitionError: it is in a file that others may read, or that is not there.
    """
    if settings.token is not None:
        given = settings.token.get_secret_value()
        return secret(given).reveal() if given.startswith("file:") else given
    file = settings.home / "token"
    if not file.exists():
        make_folder(settings.home)
        # `mkstemp` makes a file that its owner alone can read.
        descriptor, name = tempfile.mkstemp(prefix=".token-", dir=settings.home)
        scratch = Path(name)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(secrets.token_urlsafe(32))
        try:
            # Unlike a rename, a link leaves the token of a process that was quicker.
            with suppress(FileExistsError):
                os.link(scratch, file)
        finally:
            scratch.unlink()
    return read(file)
