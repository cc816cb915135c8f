"""Direct runs: assets that run in the process of their source's ingest.

After each commit of the ingest, each asset runs. If the commit has few events (`SMALL_BATCH_ROWS`),
all of these runs take the events from memory and do not read the log. Otherwise, each run reads the
events from the log's files. No streaming query is needed. The published result is the same as for
any other run: the next run also processes the arrivals of a run that was killed or skipped.

The ingest continues when the runs have ended. Records that arrive in the meantime form the next
commit, so large runs process a backlog, and the ingest never outruns them.
"""

from collections.abc import Callable, Sequence

from tidemark.base.errors import DefinitionError, EngineError
from tidemark.base.settings import Settings
from tidemark.define.definition import Definition
from tidemark.engine.queries.planning import Planning
from tidemark.run import incremental
from tidemark.run.admission import ALL, Admission
from tidemark.store.event_log.arrival import RecentArrivals
from tidemark.store.ledger import RunFacts
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.sink.follow import follow_in_background
from tidemark_streaming.streams import queries


def check_assets(settings: Settings, source: str, transforms: Sequence[Definition]) -> None:
    """Refuse assets that the ingest of a source can't run."""
    names = {t.name for t in transforms}
    for transform in transforms:
        base = transform.rolled_up_name
        if transform.source.name != source:
            raise DefinitionError(
                f"'{transform.name}' is computed from source '{transform.source.name}', so the "
                f"ingest of '{source}' can't run it: omit `--run {transform.name}`."
            )
        if base is not None and base not in names:
            raise DefinitionError(
                f"'{transform.name}' is a roll-up of '{base}', which this ingest does not run: add "
                f"`--run {base}`, or omit `--run {transform.name}`."
            )
    if streams := queries.find_running(settings, [t.name for t in transforms]):
        name = next(iter(streams))
        raise EngineError(
            f"The stream of '{name}' runs: stop it (`tidemark stream {name} --stop`), or omit "
            f"`--run {name}`."
        )


class Direct:
    """A callback of `ingest.follow` that runs assets after each commit of an ingest.

    Args:
        transforms: assets of the ingest's source; a roll-up runs after its base.
        opened: opens the warehouse with a new session, for threads that publish to Kafka.
        on_run: called with the ledger's row of each run that had arrivals to process.
        admission: the limits of a run. If a commit exceeds a limit, several runs process it.
            Roll-ups have no limits.
    """

    def __init__(
        self,
        transforms: Sequence[Definition],
        opened: Callable[[], Warehouse],
        on_run: Callable[[RunFacts], None] = lambda _: None,
        admission: Admission = ALL,
    ) -> None:
        self._transforms = sorted(transforms, key=lambda t: t.rolled_up_name is not None)
        self._opened = opened
        self._on_run = on_run
        self._admission = admission
        self._standing: set[str] = set()

    def __call__(self, warehouse: Warehouse, recent: RecentArrivals) -> None:
        """Run each asset through the newest arrival.

        Args:
            recent: the arrivals of the last commit. It is empty at the start of the ingest and
                after an outage; the runs then read the event log.
        """
        rows = sum(a.rows for a in recent.arrivals)
        with warehouse.use_planning(
            Planning.for_repeated_query(rows) if recent.arrivals else Planning.MANY
        ):
            for transform in self._transforms:
                follow_in_background(warehouse.place, transform, self._opened)
                self._run_asset(warehouse, transform, recent)

    def _run_asset(
        self, warehouse: Warehouse, definition: Definition, recent: RecentArrivals
    ) -> None:
        name = definition.name
        # A roll-up processes everything that its base has processed.
        admission = ALL if definition.rolled_up_name is not None else self._admission
        more = True
        while more:
            facts = incremental(
                warehouse,
                definition,
                limit=admission,
                recent=recent,
                pinned_definition=name in self._standing,
            )
            if facts is not None:
                self._standing.add(name)
                self._on_run(facts)
            more = facts is not None and facts.limited_by is not None
