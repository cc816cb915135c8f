"""Tests that a store's refusal is one message, whichever access it refuses."""

from collections.abc import Callable, Iterator
from typing import cast

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from helpers.processes.refusing_store import serve_refusals
from tidemark.base.errors import StoreError
from tidemark.store.committers.committer import Committer
from tidemark.store.committers.file_systems import file_system
from tidemark.store.committers.object_files import ObjectFolder
from tidemark.store.refusals import translate_refusals

ROWS = pa.table({"n": pa.array([1], pa.int64())})

REASONS = {
    (403, "SignatureDoesNotMatch"): "refuses the secret key",
    (403, "InvalidAccessKeyId"): "does not know the access key",
    (403, "AccessDenied"): "denies access",
    (401, "Unauthorized"): "refuses the credentials",
    (400, "ExpiredToken"): "refuses the credentials, which have expired",
    (404, "NoSuchBucket"): "has no such bucket",
}
WITHOUT_CONTENT = {
    401: "refuses the credentials",
    403: "denies access",
    404: "has no such bucket or file",
}
"""The reason that follows from the status alone: the reply to a `HEAD` has no content."""


@pytest.fixture(params=REASONS, ids=lambda reply: f"{reply[0]}-{reply[1]}")
def reply(request: pytest.FixtureRequest) -> tuple[int, str]:
    return request.param


@pytest.fixture
def place(reply: tuple[int, str]) -> Iterator[str]:
    with serve_refusals(*reply) as bucket:
        yield f"{bucket}/warehouse/tidemark"


def accesses(place: str) -> dict[str, Callable[[], object]]:
    """Return each kind of access to a table."""
    files = ObjectFolder(place)
    system, folder = file_system(place)
    database = Committer(cast("SparkSession", None), place)
    return {
        "open with delta-rs": lambda: DeltaTable(f"{place}/t"),
        "write with delta-rs": lambda: write_deltalake(f"{place}/t", ROWS),
        "list": lambda: list(files.list_after("_delta_log")),
        "read": lambda: files.read_files(["a", "b"]),
        "create": lambda: files.create_file("a", b"content"),
        "list with Arrow": lambda: system.get_file_info(pafs.FileSelector(folder)),
        "delete with Arrow": lambda: system.delete_dir(f"{folder}/t"),
        "append": lambda: database.append_rows(ROWS, "t", "app", 0),
        "create a table": lambda: database.create_table("t", ROWS.schema, "T", {}),
        "read rows": lambda: database.load_rows("t"),
    }


def test_a_refusal_is_one_message_for_each_access(place: str, reply: tuple[int, str]) -> None:
    for kind, access in accesses(place).items():
        with pytest.raises(StoreError) as raised, translate_refusals("use the table"):
            access()
        message = str(raised.value)
        assert message.startswith(f"The object store {REASONS[reply]}: "), (kind, message)
        assert f" {reply[0]} " in message, (kind, message)
        assert f"({reply[1]})" in message, (kind, message)
        assert not set(message) & {"\n", "\x1b", "<", "↳"}, (kind, message)
        assert "canary" not in message
        assert raised.value.exit_code == 3


def test_a_refusal_without_content_names_the_status(place: str, reply: tuple[int, str]) -> None:
    system, folder = file_system(place)
    with pytest.raises(StoreError) as raised, translate_refusals("use the table"):
        system.open_input_file(f"{folder}/a")
    reason = WITHOUT_CONTENT.get(reply[0], "failed")
    assert str(raised.value).startswith(f"The object store {reason}: HEAD http://127.0.0.1:")
