"""Check whether a server uses TLS and can be trusted, before a client connects to it.

A client whose connection is refused retries until its timeout, and then does not report why.
"""

import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

DEADLINE = 3.0
"""Seconds within which a server must complete its part of the handshake."""

NO_TLS = "no TLS"


def uses_tls(host: str, port: int, deadline: float = DEADLINE) -> bool:
    """Return whether a server uses TLS; its certificate is not verified."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with suppress(OSError):
        _shake(context, host, port, deadline)
        return True
    return False


def find_trust_problem(
    host: str, port: int, authorities: Path, protocols: Sequence[str]
) -> str | None:
    """Return why a server can't be trusted: `NO_TLS`, or the problem with its certificate.

    None if it can be trusted, or if it does not answer.
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
