"""The campaign: repeated kills and recoveries, then a check of all tables and topics."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from campaign.exactly_once import wrong
from campaign.home import Home, await_, tracebacks
from campaign.report import Report
from campaign.victims import ALL, AWAY, POINTS, PROCESSES, REBUILDS, SUPERVISED, Victims
from numbered.sources import declared, numbers
from numbered.transforms import numbers_counted
from tidemark import engine
from tidemark.base.settings import Settings
from tidemark.run.runner import incremental
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.ingest.ingest import end_source
from tidemark_streaming.kafka import broker
from tidemark_streaming.sink import SinkWriter

PAIRS = 0.15
"""The probability of two kills at once."""

DIRECT = ", without a stream"
"""The suffix of victims in the report while the ingest runs the asset."""

PAUSE = 2.0
"""The maximum time between a recovery and the next kill, in seconds."""

DIRECTLY, SUPERVISED_FROM = 0.6, 0.9
"""The shares of kills and time after which the ingest runs the asset, and after which Dagster
supervises the stream."""


@dataclass
class Bounds:
    """The end of a campaign: a number of kills or of minutes."""

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
    """Kill, wait for recovery and repeat, then check the result. Return the report.

    Args:
        settings: settings of a new home with free ports.
        kinds: the victims in order. If None, random victims: first with a stream, then with an
            ingest that runs the asset, then with a stream supervised by Dagster.
        directly: if `kinds` is given, the next victims, with an ingest that runs the asset.
        rate: events per second.
        tell: gets a line for each kill.
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
            await_(
                "The last run",
                lambda: not home.snapshot.assets_behind([numbers_counted.name], newest),
            )
            # Wait here, because the final check publishes anything that is still missing.
            await_("The last record of the topic", lambda: home.out(home.head()))
        except TimeoutError as error:
            report.wrong.append(str(error))
            # Otherwise it would send more events than are counted here.
            with suppress(TimeoutError):
                home.producer.stop()
        report.sent, report.poison = home.producer.sent, home.producer.poison
        report.wrong += home.rest()
        report.wrong += tracebacks(settings.home / "logs")
        report.wrong += _examined(settings, report)
    report.wrong += [f"a process is left: {line}" for line in home.left()]
    return report


class _Part:
    """A sequence of kills."""

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
        """Kill the chosen victims until the given share of the campaign is over.

        Args:
            how: the suffix of victims in the report.
            least: the minimum number of kills, regardless of time.

        Raises:
            TimeoutError: there was no recovery.
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
                # The kill happened later: at the fail point, or during the command.
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
    """Yield victims: a process, a fail point, or two processes at once."""
    return _dealt(chance, ALL, [*PROCESSES, *PROCESSES, AWAY, *REBUILDS, *POINTS])


def _directly(chance: random.Random) -> Iterator[list[str]]:
    """Yield victims while the ingest runs the asset."""
    alive = ("engine", "ingest", "broker")
    return _dealt(chance, alive, [*alive, *alive, "machine", AWAY, *REBUILDS, *POINTS])


def _dealt(
    chance: random.Random, pairs: Sequence[str], kinds: Sequence[str]
) -> Iterator[list[str]]:
    """Yield each kind once in random order before any repeats, and sometimes two at once."""
    while True:
        for kind in chance.sample(kinds, len(kinds)):
            if chance.random() < PAIRS:
                yield chance.sample(pairs, 2)
            yield [kind]


def _supervised(home: Home) -> Iterator[list[str]]:
    """Yield victims while Dagster supervises the stream."""
    while True:
        for kind in SUPERVISED:
            # A new request resets the failures, after which the supervisor would give up.
            home.request()
            yield [kind]


def _examined(settings: Settings, report: Report) -> list[str]:
    """Close the source, so that every window is final. Return a message for each fault."""
    engine.ensure_engine(settings)
    spark = engine.connect_session(settings)
    try:
        warehouse = Warehouse(spark, settings.warehouse, settings.database)
        end_source(warehouse, declared())
        while incremental(warehouse, numbers_counted) is not None:
            pass
        SinkWriter(warehouse, numbers_counted).publish_changes()
        return [*wrong(warehouse, broker.broker_address(settings), report.sent, report.poison)]
    finally:
        # Otherwise it stays the default session of Spark's functions for later callers.
        spark.stop()


def _now() -> int:
    return time.time_ns() // 1000
