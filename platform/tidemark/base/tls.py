"""Check whether a server uses TLS and can be trusted, before a client connects to it.

This check is needed because a client that can't connect retries until its timeout, and does not
report the reason.
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
    """Return whether a server completes a TLS handshake. Its certificate is not verified.

    Args:
        deadline: the seconds within which the server must complete the handshake.
    """
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with suppress(OSError):
        _shake_hands(context, host, port, deadline)
        return True
    return False


def find_trust_problem(
    host: str, port: int, authorities: Path, protocols: Sequence[str]
) -> str | None:
    """Return why a server can't be trusted: `NO_TLS`, or the problem with its certificate.

    Return None if the server can be trusted, or if it does not answer.

    Args:
        authorities: a PEM file with the certificates of the trusted authorities.
        protocols: the application protocols to offer (ALPN), such as `h2`.
    """
    context = ssl.create_default_context(cafile=str(authorities))
    context.set_alpn_protocols(list(protocols))
    try:
        _shake_hands(context, host, port, DEADLINE)
    except ssl.SSLCertVerificationError as error:
        return error.verify_message.rstrip(".")
    except (ssl.SSLError, ConnectionResetError):
        return NO_TLS
    except OSError:
        return None
    return None


def _shake_hands(context: ssl.SSLContext, host: str, port: int, deadline: float) -> None:
    with (
        socket.create_connection((host, port), timeout=deadline) as connection,
        context.wrap_socket(connection, server_hostname=host),
    ):
        pass
