"""Generate the events of NEXMark: among 50 events are one person, three auctions and 46 bids.

The proportions are those of the benchmark: half of the bids are for the hottest auction, three
quarters of the bidders and sellers are the most active person, and half of the bids come through
one of four channels. The numbers come from seeded generators, so each call gives the same events.

An event arrives up to two seconds after it happened, which is less than the bound of the
watermarks. No event is late, so the queries have the same results as over complete tables.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from tidemark_streaming.files.recording import ARRIVES

EVENTS = 100_000
RATE = 20
"""Events per second."""
EPOCH, AUCTIONS = 50, 3
"""The number of events in an epoch, and of auctions among them. One event is a person."""
FIRST_ID = 1_000
FIRST_CATEGORY, CATEGORIES = 10, 5
ACTIVE_PERSONS, AUCTIONS_IN_FLIGHT = 1_000, 100
HOT_GROUP = 100
"""The hottest auction changes after this many auctions, and the most active person after this many
persons.
"""
LONGEST_DELAY_MS = 2_000
BEGIN = pd.Timestamp("2015-07-15", tz="UTC")

_FIRST = [
    "Peter",
    "Paul",
    "Luke",
    "John",
    "Saul",
    "Vicky",
    "Kate",
    "Julie",
    "Sarah",
    "Deiter",
    "Walter",
]
_LAST = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
_STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
_CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_LETTERS = np.array([*"abcdefghijklmnopqrstuvwxyz_"])

_Ints = npt.NDArray[np.integer]


@dataclass(frozen=True)
class Events:
    """The first events of the benchmark.

    Args:
        count: the number of persons, auctions and bids together.
    """

    count: int = EVENTS

    @property
    def all(self) -> tuple[pd.DataFrame, ...]:
        """The persons, the auctions and the bids."""
        return self.persons, self.auctions, self.bids

    @cached_property
    def persons(self) -> pd.DataFrame:
        number = self._numbers(0, 1)
        chance = np.random.default_rng(1)
        size = len(number)
        names = [
            f"{a} {b}"
            for a, b in zip(_pick(chance, _FIRST, size), _pick(chance, _LAST, size), strict=True)
        ]
        cards = chance.integers(0, 10_000, (size, 4))
        return self._frame(
            number,
            id=FIRST_ID + number // EPOCH,
            name=names,
            email_address=[
                f"{a}@{b}.com"
                for a, b in zip(_words(chance, size, 7), _words(chance, size, 5), strict=True)
            ],
            credit_card=[" ".join(f"{part:04}" for part in card) for card in cards],
            city=_pick(chance, _CITIES, size),
            state=_pick(chance, _STATES, size),
            extra=_words(chance, size, 30),
        )

    @cached_property
    def auctions(self) -> pd.DataFrame:
        number = self._numbers(1, 1 + AUCTIONS)
        chance = np.random.default_rng(2)
        size = len(number)
        epoch = number // EPOCH
        offset = number % EPOCH
        price = _prices(chance, size)
        longest = 2 * AUCTIONS_IN_FLIGHT * EPOCH // AUCTIONS * 1000 // RATE
        expires = BEGIN + _ms(_event_millis(number) + 1 + chance.integers(0, longest, size))
        return self._frame(
            number,
            auction=FIRST_ID + epoch * AUCTIONS + offset - 1,
            item_name=_words(chance, size, 10),
            description=_words(chance, size, 40),
            initial_bid=price,
            reserve=price + _prices(chance, size),
            expires=expires.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            seller=_persons(chance, epoch, 0),
            category=FIRST_CATEGORY + chance.integers(0, CATEGORIES, size),
            extra=_words(chance, size, 30),
        )

    @cached_property
    def bids(self) -> pd.DataFrame:
        number = self._numbers(1 + AUCTIONS, EPOCH)
        chance = np.random.default_rng(3)
        size = len(number)
        epoch = number // EPOCH
        newest = (epoch + 1) * AUCTIONS - 1
        recent = newest - chance.integers(0, AUCTIONS_IN_FLIGHT + 1, size)
        auction = np.where(chance.random(size) < 1 / 2, newest // HOT_GROUP * HOT_GROUP, recent)
        common = chance.random(size) < 1 / 2
        other = chance.integers(0, 10_000, size)
        channel = np.where(
            common, _pick(chance, _CHANNELS, size), np.char.add("channel-", other.astype(str))
        )
        path = [
            "/".join(parts)
            for parts in zip(*(_words(chance, size, 4) for _ in range(3)), strict=True)
        ]
        query = np.where(common, "", np.char.add("&channel_id=", (other * 7_919).astype(str)))
        return self._frame(
            number,
            auction=FIRST_ID + np.maximum(auction, 0),
            bidder=_persons(chance, epoch, 1),
            price=_prices(chance, size),
            channel=channel,
            url=[
                f"https://www.nexmark.com/{p}/item.htm?query=1{q}"
                for p, q in zip(path, query, strict=True)
            ],
            extra=_words(chance, size, 20),
        )

    def _numbers(self, start: int, end: int) -> _Ints:
        """Return the numbers of the events whose index in their epoch is in [start, end)."""
        number = np.arange(self.count)
        return number[(number % EPOCH >= start) & (number % EPOCH < end)]

    def _frame(self, number: _Ints, **columns: object) -> pd.DataFrame:
        happened = BEGIN + _ms(_event_millis(number))
        delay = np.random.default_rng(len(number)).integers(0, LONGEST_DELAY_MS, len(number))
        return pd.DataFrame(columns).assign(
            **{"date_time": happened, ARRIVES: happened + _ms(delay)}
        )


def _event_millis(number: _Ints) -> _Ints:
    """Return the event times of numbered events, in milliseconds since `BEGIN`."""
    return number * (1000 // RATE)


def _ms(number: _Ints) -> pd.TimedeltaIndex:
    return pd.to_timedelta(number, unit="ms")


def _persons(chance: np.random.Generator, epoch: _Ints, hot: int) -> _Ints:
    """Return IDs of persons, each the ID of the most active person or of one of the newest ones.

    Args:
        hot: the place of the most active person among each `HOT_GROUP` persons. Sellers and bidders
            have different places.
    """
    recent = epoch - np.minimum(chance.integers(0, ACTIVE_PERSONS, len(epoch)), epoch)
    active = np.minimum(epoch // HOT_GROUP * HOT_GROUP + hot, epoch)
    return FIRST_ID + np.where(chance.random(len(epoch)) < 3 / 4, active, recent)


def _prices(chance: np.random.Generator, size: int) -> _Ints:
    return np.round(10 ** (chance.random(size) * 6) * 100).astype(np.int64)


def _pick(chance: np.random.Generator, values: object, size: int) -> npt.NDArray[np.str_]:
    return chance.choice(np.array(values), size)


def _words(chance: np.random.Generator, size: int, length: int) -> npt.NDArray[np.str_]:
    letters = _LETTERS[chance.integers(0, len(_LETTERS), (size, length))]
    return np.ascontiguousarray(letters).view(f"<U{length}").ravel()
