"""Tests that each client of an object store uses the credentials in AWS's shared files."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import cast
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from pyspark.sql import SparkSession

from helpers.processes.store_proxy import StoreProxy, serve_proxy
from tidemark.base.errors import StoreError
from tidemark.base.settings import Settings
from tidemark.store.committers.aws_files import profile_options
from tidemark.store.committers.client_options import client_options
from tidemark.store.committers.committer import Committer
from tidemark.store.committers.file_systems import file_system
from tidemark.store.committers.values import Merge
from tidemark.store.published import read

ROWS = pa.table({"n": pa.array([1, 2], pa.int64())})

PRINT_KEYS = """
import datetime, json, pathlib, sys
calls = pathlib.Path(sys.argv[1])
number = len(calls.read_text()) if calls.exists() else 0
calls.write_text("x" * (number + 1))
keys = {"Version": 1, "AccessKeyId": f"KEY{number}", "SecretAccessKey": "s", "SessionToken": "T"}
if len(sys.argv) > 2:
    expiration = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=int(sys.argv[2]))
    keys["Expiration"] = expiration.isoformat()
print(json.dumps(keys))
"""
"""A `credential_process`. Each call prints another key."""


class Files:
    """The shared files of a test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.credentials = folder / "credentials"
        self.config = folder / "config"

    def process(self, *valid_seconds: int) -> str:
        """Return a command that prints credentials, which may expire after some seconds."""
        program = self.folder / "print_keys.py"
        program.write_text(PRINT_KEYS)
        arguments = [program, self.folder / "calls", *valid_seconds]
        return shlex.join([sys.executable, *map(str, arguments)])

    def count_calls(self) -> int:
        """Return how often the command of `process` has run."""
        return len((self.folder / "calls").read_text())


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """Return shared files, which do not exist yet, without credentials in the environment."""
    files = Files(tmp_path)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        if name not in ("AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(files.credentials))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(files.config))
    # A client that finds no credentials asks the machine for those of its role.
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    return files


@pytest.fixture
def proxy(bucket: str) -> Iterator[StoreProxy]:
    """Yield the proxy through which the requests of a test pass."""
    with serve_proxy() as served:
        yield served


@pytest.fixture
def place(bucket: str, proxy: StoreProxy, files: Files) -> str:
    """Return the address of a database."""
    return f"{bucket}/{uuid4().hex}/tidemark"


def use_store(place: str) -> None:
    """Let each client read and write."""
    database = Committer(cast("SparkSession", None), place)
    database.create_table("numbers", ROWS.schema, "Numbers", {})
    database.append_rows(ROWS, "numbers", "app", 0)
    database.merge_rows(ROWS, "numbers", Merge(on=["n"], update=None), "app", 1)
    system, folder = file_system(place)
    assert system.get_file_info(pafs.FileSelector(folder))
    warehouse, _, name = place.rpartition("/")
    settings = Settings(warehouse=warehouse, database=name)
    assert read("numbers", settings=settings).to_pyarrow_table().num_rows == 2


KEYS = "aws_access_key_id = {}\naws_secret_access_key = canary%secret\n"
CREDENTIALS = f"""
[default]
{KEYS.format("KEYD")}
[prod]
{KEYS.format("KEYP")}aws_session_token = TOKENP
[only keys]
{KEYS.format("KEYO")}
"""
CONFIG = f"""
# Settings of other services must not confuse the reader.
[default]
region = eu-west-1
s3 =
    max_concurrent_requests = 20
[profile prod]
region = eu-central-1
[profile "in config"]
region = eu-north-1
{KEYS.format("KEYC")}
[sso-session company]
sso_region = eu-west-1
"""


@pytest.mark.parametrize(
    ("environment", "signer"),
    [
        ({}, "KEYD/eu-west-1/"),
        ({"AWS_PROFILE": "prod"}, "KEYP/eu-central-1/TOKENP"),
        ({"AWS_PROFILE": "in config"}, "KEYC/eu-north-1/"),
        ({"AWS_PROFILE": "prod", "AWS_REGION": "us-west-2"}, "KEYP/us-west-2/TOKENP"),
        ({"AWS_PROFILE": "only keys", "AWS_DEFAULT_REGION": "us-west-1"}, "KEYO/us-west-1/"),
        # As with AWS's tools, keys in the environment come before those of a profile.
        (
            {
                "AWS_PROFILE": "prod",
                "AWS_ACCESS_KEY_ID": "KEYE",
                "AWS_SECRET_ACCESS_KEY": "s",
                "AWS_REGION": "us-east-2",
            },
            "KEYE/us-east-2/",
        ),
        # delta-rs reads the files by itself if the store is Amazon's, which this variable imitates.
        ({"AWS_PROFILE": "prod", "AWS_FORCE_CREDENTIAL_LOAD": "true"}, "KEYP/eu-central-1/TOKENP"),
    ],
)
def test_all_clients_sign_with_the_keys_of_the_profile(
    environment: dict[str, str],
    signer: str,
    place: str,
    proxy: StoreProxy,
    files: Files,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files.credentials.write_text(CREDENTIALS)
    files.config.write_text(CONFIG)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    use_store(place)
    assert proxy.signers == {signer}


def test_credentials_are_renewed_before_they_expire(
    place: str, proxy: StoreProxy, files: Files
) -> None:
    files.config.write_text(f"[default]\ncredential_process = {files.process(4)}\n")
    use_store(place)
    calls = files.count_calls()
    # Their validity is short, so they are renewed after half of it.
    sleep(2)
    outdated = {f"KEY{number}/us-east-1/T" for number in range(calls)}
    assert proxy.signers <= outdated
    proxy.signers.clear()
    Committer(cast("SparkSession", None), place).append_rows(ROWS, "numbers", "app", 2)
    assert proxy.signers
    assert not proxy.signers & outdated
    assert files.count_calls() < 10


def test_a_command_without_an_expiration_runs_once(files: Files) -> None:
    files.config.write_text(f"[default]\ncredential_process = {files.process()}\n")
    first = client_options("s3://tables/one")
    assert first["AWS_ACCESS_KEY_ID"] == "KEY0"
    assert client_options("s3a://other/two") == first
    assert client_options("gs://tables/one") == client_options("/tables/one") == {}
    assert files.count_calls() == 1


def test_changed_files_are_read_again(place: str, proxy: StoreProxy, files: Files) -> None:
    files.config.write_text("[default]\nregion = eu-west-1\n")
    files.credentials.write_text(f"[default]\n{KEYS.format('KEYD')}")
    use_store(place)
    proxy.signers.clear()
    # A sign-in tool replaces the file, maybe with one of the same size.
    replacement = files.folder / "replacement"
    replacement.write_text(f"[default]\n{KEYS.format('KEYR')}")
    replacement.replace(files.credentials)
    Committer(cast("SparkSession", None), place).append_rows(ROWS, "numbers", "app", 2)
    assert proxy.signers == {"KEYR/eu-west-1/"}


def test_a_default_profile_may_have_a_region_only(files: Files) -> None:
    assert profile_options() == {}
    files.config.write_text("[default]\nregion = eu-west-1\n")
    assert profile_options() == {"AWS_REGION": "eu-west-1"}


PROD = "[profile prod]\nregion = eu-west-1\n"
FAILURES = {
    "unknown": ("[profile prot]\n", r"no profile 'prod'.* Available: prot\. Did you mean 'prot'\?"),
    "without files": ("", r"no profile 'prod'\. Available: none\. AWS_PROFILE names it"),
    "without keys": (PROD, r"'prod' has no credentials in .*unset AWS_PROFILE"),
    "without a secret key": (f"{PROD}aws_access_key_id = KEY\n", "no aws_secret_access_key"),
    "role": (
        f"{PROD}role_arn = arn:aws:iam::1:role/r\nsource_profile = prod\n{KEYS.format('KEYP')}",
        "assumes a role, which Tidemark does not read.*--profile prod --format process",
    ),
    "single sign-on": (f"{PROD}sso_session = company\n", "signs in with single sign-on, which"),
    "old single sign-on": (f"{PROD}sso_start_url = https://x\n", "signs in with single sign-on"),
    "login": (f"{PROD}login_session = arn:aws:iam::1:user/u\n", "signs in with `aws login`"),
    "no program": (
        f"{PROD}credential_process = no-such-program\n",
        r"'prod' gives no credentials\. .*'no-such-program' can't be run",
    ),
    "failing command": (
        f"{PROD}credential_process = sh -c 'echo Sign in first >&2; exit 3'\n",
        r"exit code 3 \(Sign in first\)",
    ),
    "no JSON": (f"{PROD}credential_process = echo canary\n", "prints no credentials: it must"),
    "no object": (f"{PROD}credential_process = echo 7\n", "prints no credentials: it must"),
    "no keys in JSON": (f"{PROD}credential_process = echo {{}}\n", "prints no credentials"),
    "broken": ("[profile prod\n", r"config' can't be read \(.*correct the file"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_profile_that_gives_no_credentials_is_one_message_of_each_client(
    case: str, place: str, files: Files, proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, message = FAILURES[case]
    files.config.write_text(text)
    monkeypatch.setenv("AWS_PROFILE", "prod")
    warehouse, _, name = place.rpartition("/")
    settings = Settings(warehouse=warehouse, database=name)
    system, folder = file_system(place)
    for access in (
        lambda: read("numbers", settings=settings),
        lambda: Committer(cast("SparkSession", None), place).find_head("numbers"),
        lambda: system.get_file_info(pafs.FileSelector(folder)),
        lambda: system.open_output_stream(f"{folder}/file"),
    ):
        with pytest.raises(StoreError, match=message) as raised:
            access()
        assert not set(str(raised.value)) & {"\n", "\x1b"}
        assert "canary" not in str(raised.value).replace("echo canary", "")
        assert raised.value.exit_code == 3
    assert proxy.requests == []


def test_credentials_that_have_expired_already_are_refused(files: Files) -> None:
    command = files.process(0)
    files.config.write_text(f"[default]\ncredential_process = {command}\n")
    with pytest.raises(StoreError, match="prints credentials that have expired"):
        profile_options()


def test_a_command_reports_an_unknown_profile(
    place: str, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.credentials.write_text(CREDENTIALS)
    monkeypatch.setenv("AWS_PROFILE", "prood")
    monkeypatch.setenv("TIDEMARK_WAREHOUSE", place.rpartition("/")[0])
    # A separate process, as a user starts it.
    command = [Path(sys.executable).with_name("tidemark"), "fsck"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (refused.returncode, refused.stdout) == (3, "")
    assert "error: There is no profile 'prood'." in refused.stderr
    assert "Did you mean 'prod'?" in refused.stderr
    assert "Traceback" not in refused.stderr
