"""The engine and its clients use one profile of AWS's shared files, and a wrong key is reported."""

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from helpers.cluster.machine import create_machine
from helpers.cluster.store_jars import engine_settings
from helpers.processes.object_store import BUCKET, ObjectStore
from helpers.processes.store_proxy import StoreProxy, serve_proxy

# Starts two engines, whose file system of an object store has 690 MB.
pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(1800)]

PROVIDER = (
    "spark.hadoop.fs.s3a.aws.credentials.provider="
    "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
)
"""The setting of the engine that the documentation recommends."""


@pytest.fixture
def proxy(store: ObjectStore, tmp_path: Path) -> Iterator[StoreProxy]:
    """Yield the proxy to a store whose credentials are those of a profile only."""
    profiles = tmp_path / "credentials"
    profiles.write_text(
        "[shop]\naws_access_key_id = SHOP\naws_secret_access_key = s\nregion = eu-west-1\n"
    )
    with serve_proxy() as proxy, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            if name not in ("AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP"):
                patch.delenv(name)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profiles))
        patch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        patch.setenv("AWS_PROFILE", "shop")
        yield proxy


def check_engine(
    folder: Path, store_jars: list[Path], conf: Sequence[str], *options: str
) -> "subprocess.CompletedProcess[str]":
    """Run `tidemark engine check` on a machine whose engine has further settings."""
    shared = engine_settings(store_jars)
    shared["TIDEMARK_ENGINE_CONF"] = ";".join([shared["TIDEMARK_ENGINE_CONF"], *conf])
    machine = create_machine(folder, TIDEMARK_WAREHOUSE=f"{BUCKET}/{folder.name}", **shared)
    try:
        return machine.call("engine", "check", *options)
    finally:
        machine.call("down")


def test_the_engine_and_its_clients_sign_with_the_keys_of_the_profile(
    proxy: StoreProxy, store_jars: list[Path], tmp_path: Path
) -> None:
    checked = check_engine(tmp_path / "profile", store_jars, [PROVIDER])
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "fits" in checked.stderr
    assert proxy.signers == {"SHOP/eu-west-1/"}


def test_a_wrong_key_of_this_machine_is_reported(
    proxy: StoreProxy, store_jars: list[Path], tmp_path: Path
) -> None:
    proxy.refused_keys.add("SHOP")
    engine = ("spark.hadoop.fs.s3a.access.key=ENGINE", "spark.hadoop.fs.s3a.secret.key=s")
    checked = check_engine(tmp_path / "client", store_jars, engine, "--json")
    assert checked.returncode == 1, checked.stdout + checked.stderr
    (difference,) = json.loads(checked.stdout)
    assert difference["part"] == "store"
    assert "can't read and extend it: The object store does not know" in difference["problem"]
    assert proxy.signers == {"ENGINE/eu-west-1/", "SHOP/eu-west-1/"}


def test_a_wrong_key_of_the_engine_is_reported(
    proxy: StoreProxy, store_jars: list[Path], tmp_path: Path
) -> None:
    proxy.refused_keys.add("WRONG")
    wrong = ("spark.hadoop.fs.s3a.access.key=WRONG", "spark.hadoop.fs.s3a.secret.key=s")
    checked = check_engine(tmp_path / "wrong", store_jars, wrong, "--json")
    assert checked.returncode == 1, checked.stdout + checked.stderr
    (difference,) = json.loads(checked.stdout)
    assert difference["part"] == "store"
    assert difference["required"]
    assert "the engine has no write permission there" in difference["problem"]
    assert "each with credentials of its own" in difference["problem"]
    assert "WRONG/eu-west-1/" in proxy.signers
