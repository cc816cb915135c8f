"""Direct runs: transforms that run in the process of their source's ingest.

Each commit of the ingest is followed by a run of each transform. Of few events (`rows.FEW`) the run
takes them from memory: they are read once for all transforms, and not read from the log before they
are counted. Many it reads from the log's files, each transform for itself. No query of its own
waits for either. What is published is what any other run would have published: a run that is
killed, or not reached, is made up for by the next one.

The ingest goes on when the runs have ended. What comes meanwhile is the next commit, so that a
backlog is caught up in large runs, and never outruns them.
"""

from collections.abc import Callable, Sequence

from tidemark.base.errors import DefinitionError, EngineError
from tidemark.base.settings import Settings
from tidemark.define.definition import Definition
from tidemark.engine.planning import Planning
from tidemark.run import incremental
from tidemark.run.admission import ALL, Admission
from tidemark.store.arrival import Recent
from tidemark.store.ledger import RunFacts
from tidemark.store.warehouse import Warehouse
from tidemark_streaming import queries
from tidemark_streaming.outbox.follow import attend


def check(settings: Settings, source: str, transforms: Sequence[Definition]) -> None:
    """Refuse transforms that the ingest of a source can't run.

    Raises:
        DefinitionError: one is computed from another source, or is a roll-up whose base is not
            among them, and may run at any time or never.
        EngineError: the stream of one is running: runs of both would be in each other's way.
    """
    there = {t.name for t in transforms}
    for transform in transforms:
        base = transform.follows
        if transform.source.name != source:
            raise DefinitionError(
                f"'{transform.name}' is computed from source '{transform.source.name}': the "
                f"ingest of '{source}' can't run it."
            )
        if base is not None and base not in there:
            raise DefinitionError(
                f"'{transform.name}' is a roll-up of '{base}', which this ingest is not to run: "
                f"name that too (`--run {base}`), or leave the roll-up to its own stream."
            )
    if streams := queries.running(settings, [t.name for t in transforms]):
        name = next(iter(streams))
        raise EngineError(
            f"The stream of '{name}' is running: stop it (`tidemark stream {name} --stop`), or "
            "leave the asset to it."
        )


class Direct:
    """Runs transforms on what an ingest has just brought in, as `ingest.follow` asks for it.

    Args:
        transforms: of the ingest's source; a roll-up comes after its base.
        opened: gives the warehouse in a session of its own, for who brings an asset out to Kafka.
        told: takes the facts of each run.
        admission: what a run takes in at most: the rest of a commit is for more of them.
    """

    def __init__(
        self,
        transforms: Sequence[Definition],
        opened: Callable[[], Warehouse],
        told: Callable[[RunFacts], None] = lambda _: None,
        admission: Admission = ALL,
    ) -> None:
        self._transforms = sorted(transforms, key=lambda t: t.follows is not None)
        self._opened = opened
        self._told = told
        self._admission = admission
        self._standing: set[str] = set()

    def __call__(self, warehouse: Warehouse, recent: Recent) -> None:
        """Run each transform through the newest arrival.

        Args:
            recent: what the ingest has just brought in; nothing, to begin with.

        Raises:
            DefinitionChanged: another definition has run an asset since the first run here.
            TidemarkError: as `incremental`.
        """
        rows = sum(a.rows for a in recent.arrivals)
        with warehouse.planning(Planning.again(rows) if recent.arrivals else Planning.MANY):
            for transform in self._transforms:
                attend(warehouse.place, transform, self._opened)
                self._run(warehouse, transform, recent)

    def _run(self, warehouse: Warehouse, transform: Definition, recent: Recent) -> None:
        name = transform.name
        # A roll-up follows all that its base has taken in.
        admission = ALL if transform.follows is not None else self._admission
        more = True
        while more:
            facts = incremental(
                warehouse,
                transform,
                limit=admission,
                recent=recent,
                standing=name in self._standing,
            )
            if facts is not None:
                self._standing.add(name)
                self._told(facts)
            more = facts is not None and facts.limited_by is not None
