"""Loading the modules of a domain, and what their definitions take from the home's tables."""

import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tidemark.base.errors import DefinitionError
from tidemark.base.settings import Settings
from tidemark_streaming.home import domains

PROJECT = """
from tidemark.agg import count, sum
from tidemark import chain
from tidemark import Source
from tidemark import windowed_asset
from tidemark import BoundedOutOfOrderness
from tidemark import Tumbling

ORDERS = Source(
    name="orders",
    columns={"at": "TIMESTAMP", "amount": "DOUBLE"},
    event_time="at",
    watermark=BoundedOutOfOrderness("1 minute"),
)


@windowed_asset(
    source=ORDERS,
    window=Tumbling("1 hour"),
    keys=["computed"],
    aggregates={"n": count(), "doubled": sum("2 * amount")},
)
def hourly(rows):
    return rows


HOURS = chain(name="hours", of=hourly)
"""

KINDS = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "date": pa.date32(),
    "decimal(28,2)": pa.decimal128(28, 2),
    "array<double>": pa.list_(pa.float64()),
    "timestamp": pa.timestamp("us", "UTC"),
    "struct<a:int>": pa.struct({"a": pa.int32()}),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a home with a domain `chained` in which two columns of a chain have no type."""
    package = tmp_path / "project" / "chained"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "transforms.py").write_text(PROJECT)
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TIDEMARK_DOMAINS", "chained")
    yield tmp_path / "home"
    for name in [*sys.modules]:
        if name.partition(".")[0] == "chained":
            del sys.modules[name]


@pytest.mark.parametrize("seed", range(5))
def test_a_chain_takes_types_from_the_table_of_its_asset(home: Path, seed: int) -> None:
    rng = Random(seed)
    key, total = rng.choice([*KINDS]), rng.choice([*KINDS])
    settings = Settings()
    schema = pa.schema({"computed": KINDS[key], "n": pa.int64(), "doubled": KINDS[total]})
    write_deltalake(f"{settings.warehouse}/{settings.database}/hourly", schema.empty_table())
    columns = domains.load_domains(settings.domains).sources["hours"].columns
    assert (columns["computed"], columns["doubled"]) == (key, total)
    assert columns["n"] == "bigint"


def test_a_chain_needs_types_before_its_asset_has_run(home: Path) -> None:
    with pytest.raises(DefinitionError, match=r"or from its table. Specify it, as in"):
        domains.load_domains(Settings().domains)


COLLECTED = """
from pathlib import Path

from tidemark import Source
from tidemark import BoundedOutOfOrderness
from tidemark_streaming.connector import Ingestion
from tidemark_streaming.files import FileConnector


def events(name):
    return Source(name, {"at": "TIMESTAMP"}, "at", BoundedOutOfOrderness("1 minute"))


def ingestion(source):
    return Ingestion(source, lambda *_: FileConnector(source, Path("landing")))


SOURCES = [events("north"), events("south")]
BY_REGION = {"east": events("east"), "others": (events("west"), [events("far")])}
INGESTIONS = tuple(ingestion(each) for each in SOURCES)
"""


def test_objects_in_lists_tuples_and_dictionaries_are_found(home: Path) -> None:
    (home.parent / "project" / "chained" / "connectors.py").write_text(COLLECTED)
    (home.parent / "project" / "chained" / "transforms.py").write_text("")
    known = domains.load_domains(["chained"])
    assert set(known.sources) == {"north", "south", "east", "west", "far"}
    assert set(known.ingestions) == {"north", "south"}
