"""Tests of the cache that all homes share: in a checkout, or in the user's cache folder."""

from pathlib import Path

import pytest

from tidemark.base.errors import EngineError
from tidemark.engine.launch.cache import cache_root, lock_folder


def test_a_checkout_has_its_own_cache_folder(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "setup").touch()
    assert cache_root(tmp_path, {"XDG_CACHE_HOME": "/caches"}) == tmp_path / ".engine"


def test_an_installed_package_uses_the_users_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/of/somebody")
    assert cache_root(tmp_path, {"XDG_CACHE_HOME": "/caches"}) == Path("/caches/tidemark")
    for none in ({}, {"XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": "relative"}):
        assert cache_root(tmp_path, none) == Path("/home/of/somebody/.cache/tidemark")


def test_an_unwritable_cache_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "caches").touch()
    with (
        pytest.raises(EngineError, match=rf"can't write in {tmp_path}/caches/jars \(") as raised,
        lock_folder(tmp_path / "caches" / "jars"),
    ):
        pytest.fail("it was entered")
    assert "XDG_CACHE_HOME" in str(raised.value)
