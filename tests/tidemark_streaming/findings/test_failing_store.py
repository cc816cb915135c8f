"""Tests of the findings if the object store of the warehouse fails."""

import json
from pathlib import Path

import pytest

from helpers.processes.commands import call
from helpers.processes.refusing_store import serve_refusals
from tidemark.engine.ports import free_port


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEMARK_ENGINE_PORT", str(free_port()))
    monkeypatch.setenv("TIDEMARK_DOMAINS", "gated")
    monkeypatch.setenv("TIDEMARK_WAREHOUSE", "s3a://tables/warehouse")


def test_a_refusal_of_the_store_is_one_finding() -> None:
    with serve_refusals(403, "SignatureDoesNotMatch"):
        shown = call("status", "--json")
    assert shown.exit_code == 0
    (finding,) = json.loads(shown.stdout)["findings"]
    assert (finding["kind"], finding["level"]) == ("unreadable", "error")
    assert finding["cause"].startswith("The object store refuses the secret key: GET http://127.")
    assert finding["cause"].endswith(": 403 Forbidden (SignatureDoesNotMatch).")
    assert finding["remedy"].startswith("Check the address of the store")


@pytest.mark.parametrize("command", [("fsck",), ("show", "gated"), ("quarantine", "list", "gated")])
def test_commands_end_with_one_message_and_their_own_exit_code(command: tuple[str, ...]) -> None:
    with serve_refusals(403, "SignatureDoesNotMatch"):
        shown = call(*command)
    assert shown.exit_code == 3
    (line,) = shown.stderr.strip().splitlines()[-1:]
    assert line.startswith("error: The object store refuses the secret key: ")
    assert "canary" not in shown.output
