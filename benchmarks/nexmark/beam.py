"""The events of Apache Beam's generator of NEXMark, and the results of its models.

Beam's tests compare Beam's own pipelines with these models: plain Java programs without an engine.
The jars come from Maven. `beam.lock` pins each jar with its checksum.
"""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.nexmark.domain.generator import RATE
from benchmarks.nexmark.peer import Peer, Row
from tidemark.base.errors import EngineError
from tidemark.base.settings import Settings
from tidemark.engine.launch import cache, jars
from tidemark.engine.launch.java import find_java
from tidemark_streaming.files.recording import ARRIVES

HERE = Path(__file__).parent

Value = Mapping[str, Any]


@dataclass(frozen=True)
class Comparison:
    """How to compare the result of a model with the result of Tidemark.

    Args:
        rows: SQL over the tables of Tidemark, which returns the rows to compare.
        row: converts a result of the model and its timestamp into such a row; None to skip it.
    """

    rows: str
    row: Callable[[Value, int], Row | None]


def _bid(value: Value, _: int) -> Row | None:
    # The model of q0 returns all events, including persons and auctions.
    names = ("auction", "bidder", "price", "dateTime")
    return tuple(value[n] for n in names) if "bidder" in value else None


COMPARISONS: Mapping[str, Comparison] = {
    "q0": Comparison(
        "SELECT auction, bidder, price, unix_millis(date_time) FROM {q0_log}",
        _bid,
    ),
    "q2": Comparison(
        "SELECT auction, price FROM {q2_log}", lambda v, _: (v["auction"], v["price"])
    ),
    "q3": Comparison(
        "SELECT name, city, state, auction FROM {q3_log}",
        lambda v, _: (v["name"], v["city"], v["state"], v["id"]),
    ),
    "q5": Comparison(
        "SELECT end, e.value, e.count FROM (SELECT unix_millis(window_end) AS end, "
        "explode(filter(hot, h -> h.count = hot[0].count)) AS e FROM {q5})",
        lambda v, at: (at, v["auction"], v["num"]),
    ),
    "q7": Comparison(
        "SELECT e.auction, e.bidder, e.price, unix_millis(e.date_time) FROM (SELECT "
        "explode(filter(highest, h -> h.price = highest[0].price)) AS e FROM {q7})",
        _bid,
    ),
    "q8": Comparison(
        "SELECT seller, name, reserve FROM {new_sellers_log}",
        lambda v, _: (v["id"], v["name"], v["reserve"]),
    ),
}


def run_beam(count: int) -> Peer:
    """Generate events and compute the results of the models.

    Args:
        count: the number of events.

    Raises:
        EngineError: Java can't compile, or a jar can't be fetched.
    """
    java, folder = find_java(), cache.cache_folder("nexmark")
    lines = (HERE / "beam.lock").read_text().splitlines()
    pinned = [jars.Jar(*line.replace(" ", ":").split(":")) for line in lines]
    paths = jars.ensure_jars(java, folder, pinned, Settings().maven_repository)
    command = [java.command, "-Xmx1g", "-cp", os.pathsep.join(map(str, paths))]
    command += [str(HERE / "Beam.java"), str(count), str(RATE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        output = done.stderr.strip().splitlines() or ["no output"]
        raise EngineError(f"The models of Beam can't be run (a JDK is needed): {output[-1]}")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    events = [each["value"] for each in lines if each["kind"] == "event"]
    results = {name: Counter[Row]() for name in COMPARISONS}
    for each in lines:
        if (comparison := COMPARISONS.get(each["kind"])) is None:
            continue
        if (row := comparison.row(each["value"], each["at"])) is not None:
            results[each["kind"]][row] += 1
    of = ("emailAddress", "itemName", "bidder")
    return Peer(
        name="Beam",
        events=[_frame([e for e in events if field in e]) for field in of],
        rows={name: comparison.rows for name, comparison in COMPARISONS.items()},
        results=results,
    )


def _frame(events: Sequence[Value]) -> pd.DataFrame:
    names = {
        "emailAddress": "email_address",
        "creditCard": "credit_card",
        "itemName": "item_name",
        "initialBid": "initial_bid",
    }
    frame = pd.DataFrame(list(events)).rename(columns=names)
    happened = pd.to_datetime(frame.pop("dateTime"), unit="ms", utc=True)
    frame = frame.assign(**{"date_time": happened, ARRIVES: happened})
    if "expires" in frame:
        expires = pd.to_datetime(frame["expires"], unit="ms", utc=True)
        texts = expires.dt.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return frame.assign(expires=texts).rename(columns={"id": "auction"})
    # Beam's bids have no channel and address.
    return frame.assign(channel="", url="") if "bidder" in frame else frame
