"""Define the settings: where Tidemark keeps its data, and how it connects to its engine.

The value of a setting comes from the environment (`TIDEMARK_HOME`, `TIDEMARK_ENGINE_PORT`, …), else
from the file `tidemark.toml` in the working folder (`home = "…"`), else from the default of the
setting. The error message for an invalid value names the setting and the valid values.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from ipaddress import IPv4Address
from pathlib import Path
from tomllib import TOMLDecodeError
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    IPvAnyAddress,
    SecretStr,
    ValidationError,
)
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from tidemark.base import spark_conf
from tidemark.base.addresses import ADDRESS_FORM, is_address
from tidemark.base.errors import DefinitionError
from tidemark.base.files.trust import TRUSTED, find_exposure
from tidemark.base.secret import check_mode

FILE = "tidemark.toml"
PREFIX = "TIDEMARK_"
_ENTRY_POINTS = "tidemark.domains"
"""The entry-point group in which an installed package names its domains."""
RECORDED = ("tidemark_assets.flights", "tidemark_assets.weather")
"""The built-in domains: recorded flights and weather. The bundled dbt project reads them."""


def _split_names(value: object) -> object:
    if isinstance(value, str):
        return [name.strip() for name in value.split(",")]
    return value


def _not_an_address(value: object) -> object:
    if isinstance(value, str) and "://" in value:
        raise ValueError("an address would become a folder with this name")
    return value


def _make_absolute(path: Path) -> Path:
    return path.expanduser().resolve()


def _absolute_or_address(location: object) -> object:
    """Return a path as an absolute path, and an address without a `/` at its end."""
    if not isinstance(location, str | Path):
        return location
    if is_address(str(location)):
        return str(location).rstrip("/")
    return str(_make_absolute(Path(location)))


def _no_memory(options: str) -> str:
    if "-Xmx" in options:
        raise ValueError("the engine would refuse it")
    return options


@cache
def installed_domains() -> tuple[str, ...]:
    """Return the domains that installed packages name, or the built-in domains if none does."""
    return tuple(sorted({point.value for point in entry_points(group=_ENTRY_POINTS)})) or RECORDED


def _find_marts(data: Mapping[str, Any]) -> Path | None:
    """Return the dbt project of the working folder, else the bundled project, else None.

    The bundled project is returned only if `domains` contains the domains that the project reads.
    In a checkout, the project of the working folder is the bundled project.
    """
    folder = Path("dbt_project").resolve()
    bundled = bundled_dbt_project()
    if folder.exists() and folder != bundled:
        return folder
    if set(RECORDED) <= set(data["domains"]):
        return bundled
    return None


def bundled_dbt_project() -> Path | None:
    """Return the folder of the bundled dbt project; None if `tidemark_assets` is not installed.

    Other dbt projects use the bundled project's macros, tests and profile. The folder is part of
    the installed package; in a checkout, it is in the top folder.
    """
    package = find_spec("tidemark_assets")
    if package is None or package.origin is None:
        return None
    module = Path(package.origin).resolve()
    installed = module.with_name("dbt_project")
    if installed.is_dir():
        return installed
    return module.parents[2] / "dbt_project"


_Folder = Annotated[Path, BeforeValidator(_not_an_address), AfterValidator(_make_absolute)]
_Port = Annotated[int, Field(ge=1, le=65535)]
_SECRET = re.compile(r"(token=)[^;]*")
_HOST = r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?|[0-9a-f.]*:[0-9a-f.:]+)$"
_MODULE = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$"
NOT_IN_PATHS = "[]^|\\"
"""The characters that a table's path must not contain, because delta-rs panics on them."""


def _define_setting(meaning: str, allowed: str, **arguments: Any) -> Any:  # noqa: ANN401 (Field's own type)
    return Field(description=meaning, json_schema_extra={"allowed": allowed}, **arguments)


_adopted = dict[str, Any]()
"""The settings that another process has handed to this one."""


def adopt_settings(values: Mapping[str, Any]) -> None:
    """Use the settings of another process in this one, before its environment and its folder.

    Args:
        values: the result of `Settings.export_values`, called in the other process.
    """
    _adopted.update(values)


class Settings(BaseSettings):
    """All settings of Tidemark. They are read when the object is created, and are immutable.

    Raises:
        DefinitionError: a value is invalid, or the settings file has an unknown setting.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="forbid", frozen=True, toml_file=FILE
    )

    home: _Folder = _define_setting(
        "The folder of everything that Tidemark keeps: tables, metastore, log files, "
        "token, pid files.",
        "a folder on this machine",
        default=Path(".tidemark"),
        validate_default=True,
    )
    remote: str | None = _define_setting(
        "The Spark Connect address of an existing engine; Tidemark then starts none.",
        "a Spark Connect address such as sc://host:15002 or sc://host:443/;use_ssl=true; a master "
        "of Spark such as spark://host:7077 or local[4] is not one",
        default=None,
        pattern=r"^sc://[^/;]+",
        repr=False,
    )
    engine_port: _Port = _define_setting(
        "The port on 127.0.0.1 of the engine that Tidemark starts.",
        "a port from 1 to 65535",
        default=15002,
    )
    engine_memory: str = _define_setting(
        "The memory of the engine that Tidemark starts.",
        "a number of megabytes or gigabytes, such as 512m or 4g",
        default="4g",
        pattern=r"^[1-9]\d*[mg]$",
    )
    engine_java_options: Annotated[str, AfterValidator(_no_memory)] = _define_setting(
        "Java options of the engine that Tidemark starts.",
        "options separated by spaces, without the memory (engine_memory)",
        default="-XX:+UseParallelGC",
        repr=False,
    )
    engine_archive: bool = _define_setting(
        "Let `tidemark down` build a class archive in the background if none exists "
        "(one minute and 270 MB, once), so that engines start faster.",
        "true or false",
        default=True,
    )
    engine_conf: Annotated[dict[str, str], NoDecode, BeforeValidator(spark_conf.parse_conf)] = (
        _define_setting(
            "Spark settings of the engine that Tidemark starts; in the file, a table "
            "`[engine_conf]`.",
            "name=value pairs separated by semicolons, each name one of Spark's that is not "
            "Tidemark's "
            "own",
            default_factory=dict[str, str],
            repr=False,
        )
    )
    engine_jars: Annotated[tuple[_Folder, ...], NoDecode, BeforeValidator(_split_names)] = (
        _define_setting(
            "Additional jars for the engine that Tidemark starts, such as a file system of an "
            "object store.",
            "jar files on this machine, separated by commas",
            default=(),
        )
    )
    engine_ui_port: _Port | None = _define_setting(
        "The port on 127.0.0.1 of Spark's own pages, which show plans with their values "
        "to any user of this machine; off by default.",
        "a port from 1 to 65535",
        default=None,
    )
    engine_event_log: _Folder | None = _define_setting(
        "The folder of Spark's event log, for a history server; off by default.",
        "a folder on this machine",
        default=None,
    )
    token: SecretStr | None = _define_setting(
        "The secret shared by engine and clients, or a reference to it (default: a generated one "
        "in the file `token` of the home). If the engine refuses the output of a command, the "
        "command runs again.",
        "letters, digits, '-', '_' and '.' (if `remote` is set, also '+', '/', '=' and '~'), or a "
        "reference such as env:NAME, file:PATH or command:COMMAND",
        default=None,
    )
    webserver_port: _Port = _define_setting(
        "The port on 127.0.0.1 of the Dagster web interface.",
        "a port from 1 to 65535",
        default=3000,
    )
    watch_port: _Port = _define_setting(
        "The port of the live page and the metrics.",
        "a port from 1 to 65535",
        default=3001,
    )
    watch_address: IPvAnyAddress = _define_setting(
        "The address at which the live page and the metrics listen. Requests for this address are "
        "allowed; 0.0.0.0 requires allowed_hosts.",
        "an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all of them",
        default=IPv4Address("127.0.0.1"),
    )
    allowed_hosts: Annotated[
        tuple[Annotated[str, Field(pattern=_HOST)], ...], NoDecode, BeforeValidator(_split_names)
    ] = _define_setting(
        "Host names and addresses, in addition to loopback, of Dagster's pages and the live page, "
        "such as the name of a proxy. Requests for other hosts, or from pages of other hosts, are "
        "refused.",
        "lower-case host names or addresses without a port, separated by commas",
        default=(),
    )
    kafka_port: _Port = _define_setting(
        "The port on 127.0.0.1 of the broker that `tidemark dev kafka up` starts.",
        "a port from 1 to 65535",
        default=9092,
    )
    kafka_servers: str = _define_setting(
        "The Kafka brokers of sources that don't specify any (default: the broker of "
        "`tidemark dev kafka up`).",
        "host:port, several separated by commas",
        default_factory=lambda data: f"127.0.0.1:{data['kafka_port']}",
        pattern=r"^[^\s,:]+:\d+(,[^\s,:]+:\d+)*$",
    )
    schema_registry: str = _define_setting(
        "The location of schemas that records reference by id, unless the source "
        "specifies one: a folder with a file `<id>.avsc` for each, or a registry with "
        "Confluent's protocol (default: `schemas` in the home).",
        "an absolute path or an address such as https://host:8081",
        default_factory=lambda data: str(data["home"] / "schemas"),
        pattern=r"^(/|https?://)",
    )
    schema_registry_auth: str | None = _define_setting(
        "A reference to `user:password` for the schema registry, if it requires them.",
        "a reference such as env:NAME, file:PATH or command:COMMAND",
        default=None,
        pattern=r"^(env|file|command):.",
    )
    database: str = _define_setting(
        "The database of the tables: its name in the catalog, and its folder in the warehouse.",
        "lower-case letters, digits and '_', not beginning with a digit",
        default="tidemark",
        pattern=r"^[a-z_][a-z0-9_]*$",
    )
    warehouse: str = _define_setting(
        "The folder or bucket of all tables, as the engine sees it (default: `warehouse` "
        "in the home).",
        "an absolute path, or an address of s3a://, s3://, gs://, abfss:// or abfs:// such as "
        "s3a://bucket/path, without square brackets, carets, vertical bars and backslashes",
        default_factory=lambda data: str(data["home"] / "warehouse"),
        validate_default=True,
        pattern=rf"^(/|file:/|(s3a?|gs|abfss?)://)[^{re.escape(NOT_IN_PATHS)}]*$",
    )
    durable: bool = _define_setting(
        "Sync each commit on a local disk before the next one begins, so that a power "
        "failure loses no commit. If false, commits are some milliseconds faster.",
        "true or false",
        default=True,
    )
    landing: Annotated[str, BeforeValidator(_absolute_or_address)] = _define_setting(
        "The folder in which files arrive, with one folder per source, on this machine or in an "
        "object store (default: `landing` in the home).",
        f"a folder on this machine, or {ADDRESS_FORM} such as s3://bucket/landing",
        default_factory=lambda data: str(data["home"] / "landing"),
    )
    maven_repository: str | None = _define_setting(
        "The Maven repository to fetch the engine's jars from, instead of Maven Central. The "
        "checksum of each jar is verified.",
        "an address such as https://host/path",
        default=None,
        pattern=r"^(https?|file):/",
    )
    domains: Annotated[
        tuple[Annotated[str, Field(pattern=_MODULE)], ...], NoDecode, BeforeValidator(_split_names)
    ] = _define_setting(
        "The packages with sources and transforms (default: those that installed packages "
        "register with the entry point `tidemark.domains`; if there are none, the sample "
        "domains).",
        "names of Python packages, separated by commas",
        default_factory=installed_domains,
        validate_default=True,
    )
    log_format: Literal["text", "json"] = _define_setting(
        "The log format of long-running processes: text for people, or one JSON object per line.",
        "text or json",
        default="text",
    )
    marts: _Folder | None = _define_setting(
        "The folder of the dbt project of the marts; there are no marts if it does not exist "
        "(default: `dbt_project` in the working folder; if it does not exist, and `domains` has "
        "the flights and the weather, the bundled project that reads them).",
        "a folder on this machine",
        default_factory=_find_marts,
        validate_default=True,
    )

    TOKEN: ClassVar[re.Pattern[str]] = re.compile(r"[A-Za-z0-9._-]+|(env|file|command):.+")
    # Spark's own server passes its token to streams in an address, which can't contain an equals
    # sign. Other servers accept the characters that HTTP allows.
    REMOTE_TOKEN: ClassVar[re.Pattern[str]] = re.compile(
        r"[A-Za-z0-9._~+/=-]+|(env|file|command):.+"
    )

    def __init__(self, **values: Any) -> None:  # noqa: ANN401 (pydantic's own signature)
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise DefinitionError(_describe_error(error.errors()[0])) from None
        except TOMLDecodeError as error:
            raise DefinitionError(f"The file {FILE} is not TOML: {error}.") from None
        spark_conf.check_conf(self.engine_conf)
        pattern = self.REMOTE_TOKEN if self.is_remote else self.TOKEN
        if self.token is not None and not pattern.fullmatch(self.token.get_secret_value()):
            raise DefinitionError(_describe_invalid("token", "not usable in an address"))
        if self.watch_address.is_unspecified and not self.allowed_hosts:
            raise DefinitionError(
                f"Setting watch_address is {self.watch_address}, which other machines reach, but "
                "allowed_hosts (TIDEMARK_ALLOWED_HOSTS) is empty, so all their requests would be "
                "refused: set it to the names or addresses by which they reach the live page, such "
                "as that of its service."
            )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        adopted = InitSettingsSource(settings_cls, _adopted)
        return init_settings, adopted, env_settings, _File(settings_cls)

    @property
    def is_remote(self) -> bool:
        """Whether the engine is one that Tidemark does not start."""
        return self.remote is not None

    @property
    def engine_address(self) -> str:
        """The engine's address, without the parameters that may contain a token."""
        address = self.remote or f"sc://localhost:{self.engine_port}"
        return address.partition("/;")[0]

    def landing_of(self, source: str) -> str:
        """Return the path or address of the folder in which the files of a source arrive."""
        return f"{self.landing}/{source}"

    def export_values(self) -> dict[str, Any]:
        """Return all settings without secrets, for a process in another folder.

        A worker of the engine has the environment with which the engine was started, and does not
        read the settings file. So it must get the settings that it uses from its client
        (`adopt_settings`).
        """
        private = {name for name, field in type(self).model_fields.items() if not field.repr}
        return self.model_dump(exclude={*private, "token"})


class _File(TomlConfigSettingsSource):
    """The settings file. If the file contains a secret, only its owner may have access to it.

    No other user may be able to change the file or the packages in its folder, unless the folder is
    trusted.
    """

    def __call__(self) -> dict[str, Any]:
        file = Path(FILE)
        if file.is_file() and (exposure := find_exposure(file)) is not None:
            folder = file.absolute().parent
            raise DefinitionError(
                f"The file {FILE} in {folder} selects code that runs as you, but others can change "
                f"that code: {exposure}. If you trust them, set {TRUSTED}={folder}. Otherwise, "
                "check the code, take ownership with `chown`, and remove the permission of others "
                "with `chmod go-w`."
            )
        values = super().__call__()
        secrets = (str(values.get("token", "file:")), str(values.get("remote", "")))
        if not secrets[0].startswith(("env:", "file:", "command:")) or _SECRET.search(secrets[1]):
            check_mode(Path(FILE))
        return values


def _describe_error(error: ErrorDetails) -> str:
    name = str(error["loc"][0])
    if name not in Settings.model_fields:
        available = ", ".join(Settings.model_fields)
        return f"There is no setting '{name}' (in {FILE}). Available: {available}."
    entry = _SECRET.sub(r"\1***", str(error["input"])) if name == "remote" else error["input"]
    # For an item of a list, show the item itself and not its index.
    return _describe_invalid(name, repr(str(entry) if isinstance(entry, Path) else entry))


def _describe_invalid(name: str, value: str) -> str:
    extra = Settings.model_fields[name].json_schema_extra
    allowed = extra["allowed"] if isinstance(extra, dict) else ""
    return (
        f"Setting {name} ({PREFIX}{name.upper()}, or {name} in {FILE}) is {value}: "
        f"it must be {allowed}."
    )
