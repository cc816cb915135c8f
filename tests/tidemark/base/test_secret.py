"""Tests of secrets, which are read from their source and never copied elsewhere."""

import pickle
from pathlib import Path

import pytest

from tidemark.base.errors import DefinitionError
from tidemark.base.secret import secret

VALUE = "correct horse battery staple"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "secret"
    made.write_text(f"{VALUE}\n")
    made.chmod(0o600)
    return made


def test_a_secret_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    named = secret("env:TRIED")
    with pytest.raises(DefinitionError, match="set the environment variable TRIED"):
        named.reveal()
    monkeypatch.setenv("TRIED", VALUE)
    assert named.reveal() == VALUE


def test_a_secret_is_read_from_a_file_without_the_newline(file: Path) -> None:
    assert secret(f"file:{file}").reveal() == VALUE


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_others_can_access_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(DefinitionError, match=f"has the mode {mode:04o}") as raised:
        secret(f"file:{file}").reveal()
    assert VALUE not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "sentence"), [(b"\n", "is empty"), (b"\xff\xfe", "is not text")]
)
def test_an_empty_binary_or_missing_file_is_refused(
    file: Path, content: bytes, sentence: str
) -> None:
    file.write_bytes(content)
    with pytest.raises(DefinitionError, match=sentence):
        secret(f"file:{file}").reveal()
    file.unlink()
    with pytest.raises(DefinitionError, match="can't be read: no such file"):
        secret(f"file:{file}").reveal()


@pytest.mark.parametrize("reference", [VALUE, "env:", "env:A B", "file:", "vault:x"])
def test_an_invalid_reference_is_refused_and_not_shown(reference: str) -> None:
    with pytest.raises(DefinitionError, match="never as its value") as raised:
        secret(reference)
    assert VALUE not in str(raised.value)


def test_a_secrets_text_and_pickle_hide_its_value(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIED", VALUE)
    for one in (secret("env:TRIED"), secret(f"file:{file}")):
        one.reveal()
        assert VALUE not in f"{one!r} {one} {vars(one)}"
        assert VALUE.encode() not in pickle.dumps(one)


def test_a_secret_is_the_output_of_a_command(tmp_path: Path) -> None:
    script = tmp_path / "print it"
    script.write_text(f"#!/bin/sh\nprintf '%s\\n' \"{VALUE}$1\"\n")
    script.chmod(0o700)
    assert secret(f"command:'{script}' +/=").reveal() == f"{VALUE}+/="


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("no-such-program --now", "can't be run"),
        ("sh -c 'unbalanced", "can't be run"),
        ("true", "prints nothing"),
        (
            "sh -c 'echo first >&2; echo no login >&2; exit 3'",
            r"exit code 3 \(no login\)",
        ),
    ],
)
def test_a_command_that_fails_is_reported(command: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=message) as raised:
        secret(f"command:{command}").reveal()
    assert f"'{command}'" in str(raised.value)
