"""Tests of settings from the environment and the file, and of the messages for wrong ones."""

from pathlib import Path

import pytest

from tidemark.base.errors import DefinitionError
from tidemark.base.settings import RECORDED, Settings, bundled_dbt_project, installed_domains


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in Settings.model_fields:
        monkeypatch.delenv(f"TIDEMARK_{name.upper()}", raising=False)


def test_default_settings_use_one_folder(tmp_path: Path) -> None:
    settings = Settings()
    assert settings.home == tmp_path / ".tidemark"
    assert settings.warehouse == str(tmp_path / ".tidemark" / "warehouse")
    assert settings.landing == str(tmp_path / ".tidemark" / "landing")
    assert settings.domains == ("tidemark_assets.flights", "tidemark_assets.weather")
    assert settings.remote is None


def test_domains_of_an_installed_package_replace_the_recorded_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site" / "shop-1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[tidemark.domains]\nshop = shop.retail\n")
    monkeypatch.syspath_prepend(installed.parent)
    installed_domains.cache_clear()
    try:
        assert Settings().domains == ("shop.retail",)
        assert Settings(domains=RECORDED).domains == RECORDED
    finally:
        installed_domains.cache_clear()


def test_marts_are_the_folders_own_or_the_bundled_ones(tmp_path: Path) -> None:
    assert Settings().marts == bundled_dbt_project()
    assert Settings(domains=("shop",)).marts is None
    (tmp_path / "dbt_project").mkdir()
    assert Settings().marts == tmp_path / "dbt_project"


def test_only_recorded_domains_have_bundled_marts_in_a_checkout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checkout = Path(__file__).parents[3]
    monkeypatch.chdir(checkout)
    assert Settings().marts == bundled_dbt_project() == checkout / "dbt_project"
    assert Settings(domains=("shop",)).marts is None


def test_settings_are_read_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "tidemark.toml").write_text('home = "data"\nengine_port = 15999\ndomains = ["a.b"]')
    settings = Settings()
    assert settings.home == tmp_path / "data"
    assert settings.engine_port == 15999
    assert settings.domains == ("a.b",)


def test_the_environment_overrides_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tidemark.toml").write_text("engine_port = 15999")
    monkeypatch.setenv("TIDEMARK_ENGINE_PORT", "16000")
    monkeypatch.setenv("TIDEMARK_DOMAINS", "one.two, three")
    settings = Settings()
    assert settings.engine_port == 16000
    assert settings.domains == ("one.two", "three")


def test_an_empty_variable_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_REMOTE", "")
    assert Settings().remote is None


def test_the_warehouse_may_be_in_a_bucket() -> None:
    assert Settings(warehouse="s3a://bucket/tables").warehouse == "s3a://bucket/tables"


def test_the_token_is_not_shown() -> None:
    assert "abc" not in repr(Settings(token="abc", remote="sc://host:15002/;token=abc"))
    with pytest.raises(DefinitionError, match="remote") as raised:
        Settings(remote="http://host:15002/;token=abc;use_ssl=true")
    assert "http://host:15002/;token=***;use_ssl=true" in str(raised.value)


@pytest.mark.parametrize("told", ['token = "abc"', 'remote = "sc://host:15002/;token=abc"'])
def test_a_settings_file_with_a_token_must_be_private(tmp_path: Path, told: str) -> None:
    file = tmp_path / "tidemark.toml"
    file.write_text(told)
    file.chmod(0o644)
    with pytest.raises(DefinitionError, match=r"tidemark.toml' has the mode 0644"):
        Settings()
    file.chmod(0o600)
    assert Settings().home == tmp_path / ".tidemark"
    file.write_text('token = "file:~/token"')
    file.chmod(0o644)
    token = Settings().token
    assert token is not None
    assert token.get_secret_value() == "file:~/token"


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("engine_port", "many", "a port from 1 to 65535"),
        ("webserver_port", "70000", "a port from 1 to 65535"),
        ("engine_memory", "lots", "such as 512m or 4g"),
        ("engine_java_options", "-Xmx3g", "without the memory"),
        ("remote", "http://cluster", "such as sc://host:15002"),
        ("database", "My-Tables", "lower-case letters"),
        ("warehouse", "relative/path", "an absolute path"),
        ("warehouse", "hdfs://node/tables", "s3a://, s3://, gs://, abfss:// or abfs://"),
        ("warehouse", "dbfs:/tables", "s3a://, s3://, gs://, abfss:// or abfs://"),
        *(("warehouse", f"/a{one}b", "without square brackets") for one in "[]^|\\"),
        ("landing", "hdfs://lake/landing", "a folder on this machine, or an address of s3://"),
        ("home", "file:///var/lib/tidemark", "a folder on this machine"),
        ("engine_jars", "s3a://lake/hadoop-aws.jar", "jar files on this machine"),
        ("token", "two words", "letters, digits"),
        ("domains", "not a package", "names of Python packages"),
        ("maven_repository", "mirror", "an address"),
        ("watch_address", "everywhere", "such as 127.0.0.1, or 0.0.0.0"),
        ("allowed_hosts", "tidemark.example:3001", "without a port"),
    ],
)
def test_a_wrong_value_is_refused_in_one_line(
    name: str, value: str, allowed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"TIDEMARK_{name.upper()}", value)
    with pytest.raises(DefinitionError) as raised:
        Settings()
    sentence = str(raised.value)
    assert sentence.startswith(f"Setting {name} (TIDEMARK_{name.upper()}, or {name} in tidemark.")
    assert allowed in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_listening_at_all_addresses_requires_allowed_hosts(address: str) -> None:
    with pytest.raises(DefinitionError, match=r"^Setting watch_address .*TIDEMARK_ALLOWED_HOSTS"):
        Settings(watch_address=address)
    for host in ("page.shop.svc", "10.1.2.3", "fd00::1:2"):
        settings = Settings(watch_address=address, allowed_hosts=(host,))
        assert str(settings.watch_address) == address
    assert str(Settings(watch_address="10.1.2.3").watch_address) == "10.1.2.3"


def test_a_home_in_which_delta_rs_can_not_write_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        DefinitionError, match=r"^Setting warehouse .* it must be .* without square"
    ):
        Settings(home=tmp_path / "a[1]")


def test_an_unknown_setting_in_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "tidemark.toml").write_text("engine_prot = 15999")
    with pytest.raises(DefinitionError, match=r"no setting 'engine_prot' .* engine_port"):
        Settings()


def test_a_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "tidemark.toml").write_text("engine_port: 15999")
    with pytest.raises(DefinitionError, match=r"^The file tidemark\.toml is not TOML: "):
        Settings()


def test_every_setting_documents_its_meaning_and_values() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert isinstance(field.json_schema_extra, dict), name
