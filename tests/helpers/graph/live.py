"""Live through a case: execute its operations, and check the invariant after each."""

import re
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from helpers.graph.case import Part, below
from helpers.graph.check import difference
from helpers.graph.engine import CaseEngine
from helpers.graph.home import Home, Killed, Project, dying
from helpers.graph.topic import publishing_to
from helpers.graph.without_engine import local_warehouse, plain_rows
from tidemark.base.errors import TidemarkError
from tidemark.base.settings import Settings

_MEMORY = Path("/dev/shm")
"""A folder in memory, on Linux."""


class Failure(AssertionError):  # noqa: N818
    """A node is neither up to date, nor behind, nor reported as stale.

    Args:
        kind: what is wrong: `silent` (a wrong result that nothing reports), `unreported` (a wrong
            result whose cause only a refused run or ingest names), `crash` (an error that is not
            for users), or `no way back` (a reported node that can't be recreated).
        number: the number of the operation after which it was found.
    """

    def __init__(self, kind: str, node: str, number: int, text: str) -> None:
        super().__init__(f"{kind}: {node} after operation {number}: {text}")
        self.kind = kind
        self.node = node
        self.number = number
        self.text = text

    @property
    def cause(self) -> str:
        """What failures of the same cause have in common."""
        if self.kind == "crash":
            return self.text.rstrip().rpartition("\n")[2].partition(":")[0]
        words = re.sub(r"[0-9.-]+|'[^']*'|\[.*?\]", "", self.text.partition("\n")[0])
        return " ".join(words.split()[:6]) if self.kind in ("silent", "unreported") else ""


@dataclass
class Outcome:
    """What happened in a case that held.

    Args:
        reported: the nodes that were reported as stale, with the messages.
        refused: the operations that were refused, by name, with the messages.
        seconds: the time of each operation with its progress and check.
    """

    reported: list[str]
    refused: list[str]
    seconds: list[tuple[str, float]]


def live(settings: Settings, case: Part) -> Outcome:
    """Live through a case on new tables.

    Args:
        settings: those of the engine, which operations of the case may kill.

    Raises:
        Failure: the invariant was broken.
    """
    # The engine's catalog has the tables of a mart.
    database = f"graph_{uuid4().hex[:12]}"
    with _folder_in_memory() as folder, closing(CaseEngine(settings, folder, database)) as engine:
        home = Home(engine.open(), _project(case), engine)
        with publishing_to(home.topics):
            return _Life(home, case).live()


def live_without_engine(case: Part) -> Outcome:
    """Live through a case of plain and derived sources, without an engine.

    Raises:
        Failure: the invariant was broken.
    """
    with _folder_in_memory() as folder:
        home = Home(local_warehouse(folder, "tables"), _project(case))
        with plain_rows(home):
            return _Life(home, case).live()


@contextmanager
def _folder_in_memory() -> Iterator[str]:
    """Yield a new folder. A case commits hundreds of times, and no commit has to survive a crash of
    the machine, so the folder is in memory if the system has such folders."""
    parent = _MEMORY if _MEMORY.is_dir() else None
    with TemporaryDirectory(dir=parent, prefix="tidemark-graph-") as folder:
        yield folder


def _project(case: Part) -> Project:
    return Project(deepcopy(case["sources"]), deepcopy(case["nodes"]))


class _Life:
    def __init__(self, home: Home, case: Part) -> None:
        self.home, self.case = home, case
        self.outcome = Outcome([], [], [])
        self.number = 0
        self._right = dict[str, object]()

    def live(self) -> Outcome:
        for number, operation in enumerate(self.case["operations"]):
            self.number = number
            began = time.monotonic()
            self._execute(operation)
            self._check()
            self.outcome.seconds.append((operation["do"], time.monotonic() - began))
        began = time.monotonic()
        self.number += 1
        self._settle()
        self.outcome.seconds.append(("settle", time.monotonic() - began))
        return self.outcome

    def _execute(self, operation: Part) -> None:
        home = self.home
        # A node may have been removed from the case.
        names = {*home.project.sources, *home.nodes}
        query = operation.get("engine")
        engine_ends = nullcontext() if home.engine is None else home.engine.dying(home.store, query)
        try:
            with dying(operation.get("kill")), engine_ends:
                self._try(operation["do"], lambda: home.execute(operation), self.outcome.refused)
                for name in operation["then"]:
                    if name in names:
                        self._progress(name)
        except Killed:
            home.reopen()
        else:
            if query is None and operation.get("interrupted") != "engine":
                return
        if home.engine is not None and not home.engine.is_running():
            home.restart_engine()
        for name in home.sent:
            self._try(name, partial(home.ingest, name), self.outcome.refused)

    def _try(self, name: str, work: Callable[[], None], refused: list[str]) -> bool:
        """Return whether some work was done; false if it was refused."""
        try:
            work()
        except TidemarkError as error:
            refused.append(f"{name}: {error}")
            return False
        except Exception as error:
            text = "".join(traceback.format_exception(error))
            raise Failure("crash", name, self.number, text) from error
        return True

    def _progress(self, name: str) -> bool:
        """Let a node make progress. Return false if it refused."""
        return self._try(name, partial(self.home.progress, name), self.outcome.reported)

    def _check(self) -> None:
        home = self.home
        for name in home.sent:
            if wrong := self._difference(name):
                raise Failure("silent", name, self.number, wrong)
        unfinished = below(home.nodes, home.erasing)
        for name in home.nodes:
            if name in unfinished or self._difference(name) is None:
                continue
            if (cause := home.reported(name)) is not None:
                self.outcome.reported.append(f"{name}: {cause}")
                continue
            has_progressed = self._progress(name)
            if (wrong := self._difference(name)) is None:
                continue
            if (finding := home.damage(name) or home.unfinished(name)) is not None:
                self.outcome.reported.append(f"{name}: {finding}")
            elif has_progressed:
                raise Failure("silent", name, self.number, wrong)
            else:
                refusal = f"{wrong}\n{self.outcome.reported[-1]}"
                raise Failure("unreported", name, self.number, refusal)

    def _difference(self, name: str) -> str | None:
        """Return how a source or node is wrong, if its tables or definitions have changed since it
        was right."""
        state = self.home.state_of(name)
        if self._right.get(name) == state:
            return None
        found = difference(self.home, name)
        if found is None:
            self._right[name] = state
        return found

    def _settle(self) -> None:
        """Finish everything, recompute what is stale, and compare everything."""
        home = self.home
        for name, erasure in dict(home.erasing).items():
            self._try(name, partial(home.do_erase, erasure), self.outcome.refused)
            if name in home.erasing:
                raise Failure("no way back", name, self.number, "an erasure can't be finished")
        self._check()
        for name in home.nodes:
            refused = list[str]()
            if home.reported(name) is not None or not self._progress(name):
                self._try(name, partial(home.recompute, name), refused)
            self._try(name, partial(home.progress, name), refused)
            if cause := home.reported(name):
                refused.append(cause)
            if (refused or self._difference(name)) and home.damage(name):
                # The message recommends to drop such an asset.
                refused.clear()
                self._try(name, partial(home.do_drop, {"node": name}), refused)
                self._try(name, partial(home.progress, name), refused)
            if refused:
                raise Failure("no way back", name, self.number, "\n".join(refused))
            if wrong := self._difference(name):
                raise Failure("silent", name, self.number, wrong)
        self._check()
