"""`tidemark engine conf` and `tidemark engine check`: their output and exit codes."""

import json

import pytest

from helpers.processes.commands import call
from tidemark.base.settings import Settings
from tidemark.engine.conf import SETTINGS


def test_the_settings_are_printed_each_below_its_reason() -> None:
    lines = call("engine", "conf").stdout.splitlines()
    printed = dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))
    assert printed == {setting.name: setting.value for setting in SETTINGS}
    for setting in SETTINGS:
        assert lines[lines.index(f"{setting.name} {setting.value}") - 1] == f"# {setting.reason}"


@pytest.mark.usefixtures("here")
def test_an_engine_that_fits_and_one_that_does_not(
    here: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_DOMAINS", "gated")
    fits = call("engine", "check")
    assert fits.exit_code == 0, fits.stdout
    assert "it fits" in fits.stderr
    monkeypatch.setenv("TIDEMARK_DOMAINS", "no_such_domain")
    found = call("engine", "check", "--json")
    assert found.exit_code == 1
    assert {each["part"] for each in json.loads(found.stdout)} == {"workers", "server"}
