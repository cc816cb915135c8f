"""The campaign: kill, wait for recovery, and kill again; then look at all that is left."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from campaign.exactly_once import wrong
from campaign.home import Home, await_
from campaign.report import Report
from campaign.victims import ALL, AWAY, POINTS, PROCESSES, REBUILDS, SUPERVISED, Victims
from numbered.sources import declared, numbers
from numbered.transforms import numbers_counted
from tidemark import engine
from tidemark.base.settings import Settings
from tidemark.run.runner import incremental
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.ingest.ingest import end
from tidemark_streaming.kafka import broker
from tidemark_streaming.sink import Outbox

PAIRS = 0.15
"""How often two are killed at once."""

DIRECT = ", without a stream"
"""What the report adds to the names of victims where the ingest does the stream's work."""

PAUSE = 2.0
"""Seconds at most between a recovery and the next kill."""

DIRECTLY, SUPERVISED_FROM = 0.6, 0.9
"""From which part of the kills, and of the time, on the ingest does the stream's work, and Dagster
looks after the stream."""


@dataclass
class Bounds:
    """When a campaign ends: after so many kills, or so many minutes."""

    kills: int
    minutes: float


def campaign(
    settings: Settings,
    kinds: Sequence[str] | None,
    bounds: Bounds,
    *,
    directly: Sequence[str] = (),
    seed: int,
    rate: int,
    tell: Callable[[str], None],
) -> Report:
    """Kill, wait for recovery, and kill again; then see what is left.

    Args:
        settings: of a home of its own, with free ports.
        kinds: what to kill in turn, and nothing else; without, what chance says, then the same
            where the ingest does the stream's work, and then what Dagster looks after.
        directly: where kinds are given, what to kill after them, with such an ingest.
        rate: events a second.
        tell: takes a line for each kill.
    """
    report = Report(seed)
    with ExitStack() as ends:
        home = Home(settings, ends, rate, seed)
        try:
            part = _Part(home, report, bounds, random.Random(seed), tell)
            if kinds is None:
                part.strike(_by_chance(part.chance), DIRECTLY)
                home.run_directly()
                tell("From now on the ingest does the stream's work.")
                part.strike(_directly(part.chance), SUPERVISED_FROM, DIRECT, least=1)
                home.supervise()
                tell("From now on Dagster's daemon looks after the stream.")
                part.strike(_supervised(home), 1.0, ", supervised", least=len(SUPERVISED))
            else:
                part.strike(kind.split("+") for kind in kinds)
                if directly:
                    home.run_directly()
                    part.strike((kind.split("+") for kind in directly), 1.0, DIRECT)
            home.producer.stop()
            total = home.producer.sent + home.producer.poison
            await_("The last event", lambda: home.brought() >= total)
            newest = home.snapshot.newest_arrival(numbers.name)
            await_("The last run", lambda: not home.snapshot.behind([numbers_counted.name], newest))
            # What does not come out by itself would do so below.
            await_("The last record of the topic", lambda: home.out(home.head()))
        except TimeoutError as error:
            report.wrong.append(str(error))
        report.sent, report.poison = home.producer.sent, home.producer.poison
        report.wrong += home.rest()
        report.wrong += _examined(settings, report)
    report.wrong += [f"a process is left: {line}" for line in home.left()]
    return report


class _Part:
    """Kills, one after the other."""

    def __init__(
        self,
        home: Home,
        report: Report,
        bounds: Bounds,
        chance: random.Random,
        tell: Callable[[str], None],
    ) -> None:
        self.chance = chance
        self._home, self._report, self._bounds, self._tell = home, report, bounds, tell
        self._victims = Victims(home, chance)
        self._began = time.monotonic()

    def strike(
        self, choices: Iterator[Sequence[str]], share: float = 1.0, how: str = "", least: int = 0
    ) -> None:
        """Kill what is chosen, until that share of the campaign is over.

        Args:
            how: what the report adds to the names of victims.
            least: so many are killed, whatever the time.

        Raises:
            TimeoutError: it did not recover.
        """
        self._recovered("The first run", [], _now())
        least += self._report.kills
        for chosen in choices:
            spent, kills = time.monotonic() - self._began, self._report.kills
            over = kills >= self._bounds.kills * share or spent >= self._bounds.minutes * 60 * share
            if over and kills >= least:
                return
            time.sleep(self.chance.uniform(0, PAUSE))
            began, since = time.monotonic(), _now()
            backs = {kind: self._victims.kill(kind) for kind in chosen}
            killed = {kind: back for kind, back in backs.items() if back is not None}
            name = "+".join(killed) + how
            if not killed:
                self._tell(f"{'+'.join(chosen)}{how} was not there to be killed")
                continue
            if any(kind in (*POINTS, *REBUILDS) for kind in killed):
                # Whoever is killed there was so when it was reached, a command in its course.
                began, since = time.monotonic(), _now()
            self._recovered(f"Recovery from {name}", [*killed.values()], since)
            took = time.monotonic() - began
            self._report.add(name, took)
            self._tell(
                f"{self._report.kills} of {self._bounds.kills} kills, {spent / 60:.0f} of "
                f"{self._bounds.minutes:.0f} minutes: {name}, back after {took:.1f} s"
            )

    def _recovered(self, what: str, backs: Sequence[Callable[[], bool]], since: int) -> None:
        home = self._home
        await_(what, lambda: all(back() for back in backs) and home.published(since))
        version = home.head()
        await_(f"{what}: the topic", lambda: home.out(version))


def _by_chance(chance: random.Random) -> Iterator[list[str]]:
    """What to kill: a process or a fail point, or two processes at once."""
    return _dealt(chance, ALL, [*PROCESSES, *PROCESSES, AWAY, *REBUILDS, *POINTS])


def _directly(chance: random.Random) -> Iterator[list[str]]:
    """What to kill where the ingest does the stream's work."""
    alive = ("engine", "ingest", "broker")
    return _dealt(chance, alive, [*alive, *alive, "machine", AWAY, *REBUILDS, *POINTS])


def _dealt(
    chance: random.Random, pairs: Sequence[str], kinds: Sequence[str]
) -> Iterator[list[str]]:
    """Kinds as from a pack of cards, so that each comes up before it is shuffled anew; and at
    times two at once."""
    while True:
        for kind in chance.sample(kinds, len(kinds)):
            if chance.random() < PAIRS:
                yield chance.sample(pairs, 2)
            yield [kind]


def _supervised(home: Home) -> Iterator[list[str]]:
    """What to kill where Dagster looks after the stream."""
    while True:
        for kind in SUPERVISED:
            # As a person would: after some failures in a row it would be given up.
            home.wish()
            yield [kind]


def _examined(settings: Settings, report: Report) -> list[str]:
    """End the stream of events, so that every window is final, and look at all that is there."""
    engine.ensure(settings)
    spark = engine.session(settings)
    try:
        warehouse = Warehouse(spark, settings.warehouse, settings.database)
        end(warehouse, declared())
        while incremental(warehouse, numbers_counted) is not None:
            pass
        Outbox(warehouse, numbers_counted).emit()
        return [*wrong(warehouse, broker.address(settings), report.sent, report.poison)]
    finally:
        # Otherwise it would be the one that Spark's functions ask, also of whoever comes next.
        spark.stop()


def _now() -> int:
    return time.time_ns() // 1000
