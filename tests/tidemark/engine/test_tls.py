"""Tests of a remote engine behind TLS: the trusted certificates and the error messages."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from helpers.kafka.certificates import Authority
from helpers.kafka.tls_proxy import tls_before
from tidemark import engine as spark_engine
from tidemark.base import tls
from tidemark.base.errors import EngineError
from tidemark.base.settings import Settings
from tidemark.engine import probe
from tidemark.engine.probe import AUTHORITIES
from tidemark.engine.token import token_of

# Each test starts processes that connect to an engine through TLS.
pytestmark = pytest.mark.slow

PATIENCE = 15.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def proxy(engine: Settings, authority: Authority) -> Iterator[int]:
    """Yield the port of a TLS proxy in front of the tests' engine."""
    with tls_before(engine.engine_port, authority.server()) as port:
        yield port


@pytest.fixture(autouse=True)
def _trusting(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust the authority, and give servers time for a handshake on a busy machine."""
    monkeypatch.setenv(AUTHORITIES, str(authority.certificate))
    monkeypatch.setattr(tls, "DEADLINE", PATIENCE)
    asked = tls.uses_tls
    monkeypatch.setattr(probe, "uses_tls", lambda host, port, _: asked(host, port, PATIENCE))


def refused(settings: Settings) -> str:
    """Return the error message of a refused engine, which must come soon and hide the token."""
    begun = time.monotonic()
    with pytest.raises(EngineError) as raised:
        spark_engine.ensure_engine(settings)
    assert time.monotonic() - begun < 10 + PATIENCE
    sentence = str(raised.value)
    assert "\n" not in sentence
    if settings.token is not None:
        assert settings.token.get_secret_value() not in sentence
    return sentence


_ASKING = """
import time
from tidemark import engine
from tidemark.base.settings import Settings
settings = Settings()
engine.ensure_engine(settings)
print(engine.connect_session(settings).range(7).count(), "rows", flush=True)
input()
"""


def test_a_tls_connection_never_exposes_the_token(
    engine: Settings, proxy: int, tmp_path: Path
) -> None:
    token = tmp_path / "token-of-the-engine"
    token.touch(0o600)
    token.write_text(token_of(engine))
    env = os.environ | {
        "TIDEMARK_HOME": str(tmp_path / "home"),
        "TIDEMARK_REMOTE": f"sc://localhost:{proxy}/;use_ssl=true",
        "TIDEMARK_TOKEN": f"file:{token}",
    }
    with subprocess.Popen(
        [sys.executable, "-c", _ASKING],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        told = process.stdout.readline()
        lines = [" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"])]
        rest, errors = process.communicate("\n", timeout=60)
    assert told == "7 rows\n", errors
    assert token_of(engine) not in "\n".join([*lines, told, rest, errors])
    files = [f for f in (tmp_path / "home").rglob("*") if f.is_file()]
    assert [f for f in files if token_of(engine).encode() in f.read_bytes()] == []


def test_a_wrong_token_is_reported_through_tls(
    engine: Settings, proxy: int, tmp_path: Path
) -> None:
    """Use another process, because gRPC reads the trusted authorities only once per process."""
    env = os.environ | {
        "TIDEMARK_HOME": str(tmp_path),
        "TIDEMARK_REMOTE": f"sc://localhost:{proxy}/;use_ssl=true",
        "TIDEMARK_TOKEN": "some-wrong-token",
    }
    tidemark = str(Path(sys.executable).with_name("tidemark"))
    done = subprocess.run(
        [tidemark, "run", "departures_hourly"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert f"The engine at sc://localhost:{proxy} refused the token" in said
    assert "some-wrong-token" not in said + done.stdout


@pytest.mark.nightly
def test_a_certificate_of_an_untrusted_authority_is_refused(
    proxy: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(
        home=tmp_path, remote=f"sc://localhost:{proxy}/;use_ssl=true", token="t0k3n"
    )
    monkeypatch.setenv(AUTHORITIES, str(Authority(tmp_path, "other").certificate))
    assert "is not trusted (self-signed certificate in certificate chain)" in refused(settings)
    monkeypatch.delenv(AUTHORITIES)
    assert f"set {AUTHORITIES} to a file with the certificate of" in refused(settings)
    monkeypatch.setenv(AUTHORITIES, str(tmp_path / "none.pem"))
    assert "which is not a file of certificates: no such file" in refused(settings)


def test_a_certificate_for_another_host_is_refused(
    engine: Settings, authority: Authority, tmp_path: Path
) -> None:
    with tls_before(engine.engine_port, authority.server("engine.example")) as port:
        remote = f"sc://localhost:{port}/;use_ssl=true"
        sentence = refused(Settings(home=tmp_path, remote=remote))
    assert "Hostname mismatch, certificate is not valid for 'localhost'" in sentence


def test_an_engine_without_tls_is_refused(engine: Settings, tmp_path: Path) -> None:
    for remote in (
        f"sc://localhost:{engine.engine_port}/;use_ssl=true",
        f"sc://127.0.0.1:{engine.engine_port}",
    ):
        assert "does not use TLS. TLS is required by use_ssl=true, and by a token" in refused(
            Settings(home=tmp_path, remote=remote, token="t0k3n")
        )


@pytest.mark.nightly
def test_an_engine_that_requires_tls_is_reported(proxy: int, tmp_path: Path) -> None:
    sentence = refused(Settings(home=tmp_path, remote=f"sc://localhost:{proxy}"))
    assert f"requires TLS: set TIDEMARK_REMOTE to sc://localhost:{proxy}/;use_ssl=true" in sentence
