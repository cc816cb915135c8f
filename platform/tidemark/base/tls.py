"""TLS: whether a server speaks it, and whether it is to be trusted, known before anything is asked
of it. Clients that are refused try again until their time is out, and then don't say why."""

import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

DEADLINE = 3.0
"""Seconds that a server has for its part of the handshake."""

NO_TLS = "no TLS"


def speaks_tls(host: str, port: int, deadline: float = DEADLINE) -> bool:
    """Whether a server answers TLS, whoever it says that it is."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with suppress(OSError):
        _shake(context, host, port, deadline)
        return True
    return False


def distrusted(host: str, port: int, authorities: Path, protocols: Sequence[str]) -> str | None:
    """Why a server is not to be trusted: `NO_TLS`, or what is wrong with its certificate; None
    where it is, or where nobody answers.

    Args:
        authorities: the file of the certificates of those who may vouch for it.
        protocols: what is to be spoken over TLS.

    Raises:
        OSError: the file can't be read, or has no certificates.
    """
    context = ssl.create_default_context(cafile=str(authorities))
    context.set_alpn_protocols(list(protocols))
    try:
        _shake(context, host, port, DEADLINE)
    except ssl.SSLCertVerificationError as error:
        return error.verify_message.rstrip(".")
    except (ssl.SSLError, ConnectionResetError):
        return NO_TLS
    except OSError:
        return None
    return None


def _shake(context: ssl.SSLContext, host: str, port: int, deadline: float) -> None:
    with (
        socket.create_connection((host, port), timeout=deadline) as connection,
        context.wrap_socket(connection, server_hostname=host),
    ):
        pass
