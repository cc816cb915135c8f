"""The command line with a landing folder in an object store."""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.data.landing import HEADER, SOURCE, connector, put
from helpers.processes.commands import call
from helpers.processes.following import Following
from helpers.processes.object_store import serve_bucket
from helpers.processes.refusing_store import serve_refusals
from helpers.processes.store_proxy import StoreProxy, serve_proxy
from tidemark.base.errors import DefinitionError
from tidemark.base.settings import Settings
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.connector import Excerpt, Ingestion, Landed
from tidemark_streaming.ingest.play import play_files

CONNECTORS = """
from helpers.data.landing import connector, SOURCE
from tidemark_streaming.connector import Ingestion

ingestion = Ingestion(SOURCE, connector)
"""


@pytest.fixture(scope="module", autouse=True)
def domain(here: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Configure a domain with one source of files."""
    folder = tmp_path_factory.mktemp("domain")
    package = folder / "of_buckets"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "connectors.py").write_text(CONNECTORS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *sys.path]))
        patch.setenv("TIDEMARK_DOMAINS", package.name)
        yield


def test_the_files_of_a_bucket_are_ingested(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_bucket() as bucket:
        monkeypatch.setenv("TIDEMARK_LANDING", f"{bucket}/landing/")
        assert Settings().landing_of("sensors") == f"{bucket}/landing/sensors"
        place = f"{bucket}/landing/sensors"
        put(place, "1.csv", f"{HEADER}2023-11-14T22:13:20Z,a,1\ngibberish,a,1\n")
        first = json.loads(call("ingest", "sensors", "--json").stdout)
        assert (first["events"], first["dead_letters"]) == (1, 1)
        (letters,) = json.loads(call("dead-letters", "show", "sensors", "--json").stdout)
        assert letters["read_from"] == "1.csv#1"
        put(place, "2.csv", f"{HEADER}2023-11-14T22:13:21Z,a,2\n")
        second = json.loads(call("ingest", "sensors", "--json").stdout)
        assert (second["events"], second["dead_letters"]) == (1, 0)
        put(place, "1.csv", HEADER)
        refused = call("ingest", "sensors")
        assert refused.exit_code == 2
        assert "File 's3://tables/landing/sensors/1.csv' of source 'sensors' has " in refused.stderr


@pytest.mark.parametrize("command", [["ingest", "sensors"], ["ingest", "sensors", "--follow"]])
def test_a_refusal_of_the_store_ends_each_ingest(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_refusals(403, "SignatureDoesNotMatch") as bucket:
        monkeypatch.setenv("TIDEMARK_LANDING", f"{bucket}/landing")
        ended = call(*command)
    assert ended.exit_code == 3
    assert "refuses the secret key" in ended.stderr
    assert "Traceback" not in ended.stderr


@contextmanager
def follow_bucket(warehouse: Warehouse) -> Iterator[tuple[StoreProxy, Following]]:
    """Follow a bucket, after its first file was ingested. At the end, ingest another file."""
    with serve_bucket() as bucket, serve_proxy() as proxy:
        place = f"{bucket}/landing/sensors"
        put(place, "1.csv", f"{HEADER}2023-11-14T22:13:20Z,a,1\n")
        following = Following(warehouse, connector(place))
        following.brings(1)
        yield proxy, following
        following.end()
        put(place, "2.csv", f"{HEADER}2023-11-14T22:13:21Z,a,2\n")
        following.brings(1)
        following.join()


def test_an_ingest_that_follows_waits_for_the_store(warehouse: Warehouse) -> None:
    with follow_bucket(warehouse) as (proxy, following):
        proxy.is_away = True
        assert "The object store does not answer" in following.says()
        proxy.is_away = False
        assert following.says().startswith("The outage ended after")


def test_an_ingest_that_follows_polls_every_two_seconds(warehouse: Warehouse) -> None:
    with follow_bucket(warehouse) as (proxy, _):
        with proxy.count() as polls:
            time.sleep(5)
        assert {request.kind for request in polls} == {"LIST"}
        assert len(polls) <= 3


def test_a_recording_is_not_played_into_a_bucket(warehouse: Warehouse) -> None:

    def nothing(landing: Path, excerpt: Excerpt) -> Iterator[Landed]:
        yield from ()

    ingestion = Ingestion(SOURCE, connector, play=nothing)
    with pytest.raises(DefinitionError, match="can't be played into 's3://bucket/landing'"):
        list(play_files(warehouse, ingestion, "s3://bucket/landing", Excerpt()))
