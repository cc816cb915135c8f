"""Test certificates: an authority, and servers and clients that it signs."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Authority:
    """A certificate authority, which writes its certificates to a folder."""

    folder: Path
    name: str = "authority"

    @cached_property
    def certificate(self) -> Path:
        """Its own certificate (PEM), which clients trust."""
        return self._write("ca", _pem(self._own))

    def server(self, host: str = "localhost") -> Path:
        """Create a server's key and certificate for a host and 127.0.0.1. Return the PEM file."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName(host), x509.IPAddress(IPv4Address("127.0.0.1"))]
        signed = (
            self._builder(host, key.public_key())
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return self._write("server", _pem(key) + _pem(signed) + _pem(self._own))

    def client(self, name: str, password: str = "") -> tuple[Path, Path]:
        """Create a client's certificate and key. Return the two PEM files.

        The key is encrypted if a password is given.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        signed = self._builder(name, key.public_key()).sign(self._key, hashes.SHA256())
        return self._write(name, _pem(signed)), self._write(f"{name}-key", _pem(key, password))

    @cached_property
    def _key(self) -> ec.EllipticCurvePrivateKey:
        return ec.generate_private_key(ec.SECP256R1())

    @cached_property
    def _own(self) -> x509.Certificate:
        return (
            self._builder(self.name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    def _builder(self, subject: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(_named(subject))
            .issuer_name(_named(self.name))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
        )

    def _write(self, name: str, pem: bytes) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / f"{self.name}-{name}.pem"
        file.touch(0o600)
        file.write_bytes(pem)
        return file


def _pem(part: x509.Certificate | ec.EllipticCurvePrivateKey, password: str = "") -> bytes:
    if isinstance(part, x509.Certificate):
        return part.public_bytes(Encoding.PEM)
    locked = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    return part.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
