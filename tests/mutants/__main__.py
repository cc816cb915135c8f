"""`python -m mutants [TEXT]…`: plant the declared faults; with texts, those that have one of them.

Exit code 1: one was not seen. 2: one can't be planted, or its tests don't pass, or don't even run,
in the copy.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Self

from mutants.declared import ROOT, Mutant, StaleError, declared
from tidemark import engine
from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port
from tidemark_streaming.kafka import broker

INTERRUPTED = 130
SEEN, PASSED = 1, 0
SAID = {SEEN: "seen", PASSED: "NOT SEEN"}
"""By pytest's exit code: a test failed, all passed. With any other they did not run."""


_NUMBERS = count(1)


class NotRunError(Exception):
    """Tests that say nothing of faults: they don't pass without one, or don't run with one."""


def copied(folder: Path) -> Path:
    """A copy of the checkout's files, with the engine's jars, which are linked."""
    root = folder / "checkout"
    told = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in told.stdout.decode().split("\0"):
        if name and (ROOT / name).exists():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)
    (root / ".engine").symlink_to(ROOT / ".engine")
    return root


class Again:
    """Runs the tests of a file in the copy, as often as they are asked for."""

    def __init__(self, root: Path, tests: str, env: dict[str, str]) -> None:
        command = [sys.executable, "-P", Path(__file__).with_name("again.py"), tests]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, cwd=root, env=env, stdin=pipe, stdout=pipe, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate()

    def run(self, only: str) -> tuple[int, str]:
        """How pytest ended over those that `only` selects, and what it said."""
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        asked.write(json.dumps(only) + "\n")
        asked.flush()
        if not (answer := answers.readline()):
            raise NotRunError("The process that runs the tests has ended: see above.")
        code, said = json.loads(answer)
        return code, said


@contextmanager
def planted(root: Path, mutant: Mutant) -> Iterator[None]:
    """The copy with a fault."""
    file, text = root / mutant.file, (root / mutant.file).read_text()
    changed = file.stat().st_mtime
    file.write_text(mutant.planted(root))
    # By size and time, to the second, Python knows whether a file's bytecode is of another text.
    other = changed + next(_NUMBERS)
    os.utime(file, (other, other))
    try:
        yield
    finally:
        file.write_text(text)
        os.utime(file, (changed, changed))


def selection(mutants: Sequence[Mutant]) -> str:
    """What selects all tests that are asked for by one of the faults."""
    asked = dict.fromkeys(mutant.only for mutant in mutants)
    return "" if "" in asked else " or ".join(asked)


def try_each(
    mutants: Sequence[Mutant], root: Path, env: dict[str, str], found: dict[str, list[Mutant]]
) -> None:
    """Plant the faults that the tests of one file should see, one after the other.

    Args:
        found: is given those that were seen, and those that were not.

    Raises:
        NotRunError: the tests don't pass without a fault, before the first or after the last, or
            don't run with one.
    """
    with Again(root, mutants[0].tests, env) as again:

        def run_without(when: str, only: str) -> None:
            code, said = again.run(only)
            if code != PASSED:
                raise NotRunError(
                    f"{said}\nWithout a fault {mutants[0].tests} does not pass {when}."
                )

        run_without("to begin with", selection(mutants))
        for mutant in mutants:
            begun = time.monotonic()
            with planted(root, mutant):
                code, said = again.run(mutant.only)
            if code not in SAID:
                raise NotRunError(f"{said}\nWith '{mutant.fault}' the tests do not run: see above.")
            how = SAID[code]
            found[how].append(mutant)
            took = time.monotonic() - begun
            sys.stdout.write(f"{how} {took:4.0f} s  {mutant.of}: {mutant.rule}: {mutant.fault}\n")
            sys.stdout.flush()
        # An engine that has died makes every test fail, and would have seen all of them.
        run_without("any more", mutants[-1].only)


def run(mutants: Sequence[Mutant], root: Path, env: dict[str, str]) -> int:
    """The exit code, after all were planted in the copy at `root`, one after the other."""
    files: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        files.setdefault(mutant.tests, []).append(mutant)
    found: dict[str, list[Mutant]] = {how: [] for how in SAID.values()}
    failed = False
    for of_one in files.values():
        try:
            try_each(of_one, root, env, found)
        except NotRunError as error:
            sys.stderr.write(f"{error}\n")
            failed = True
    seen, unseen = found[SAID[SEEN]], found[SAID[PASSED]]
    for mutant in unseen:
        sys.stdout.write(f"not seen by {mutant.tests}: {mutant.fault} ({mutant.file})\n")
    code = 2 if failed else 1 if unseen else 0
    sys.stdout.write(
        f"{len(mutants)} faults: {len(seen)} seen, {len(unseen)} not seen, "
        f"{len(mutants) - len(seen) - len(unseen)} not tried: exit code {code}.\n"
    )
    return code


def main() -> int:
    # A signal ends it as an interrupt does: the copy is removed, engine and broker stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument(
        "texts", nargs="*", help="those with one of these in 'of', rule, or the file of tests"
    )
    texts = parser.parse_args().texts or [""]
    told = {mutant: f"{mutant.of}: {mutant.rule}: {mutant.tests}" for mutant in declared()}
    mutants = [mutant for mutant, words in told.items() if any(text in words for text in texts)]
    try:
        for mutant in mutants:
            mutant.planted(ROOT)
    except StaleError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if not mutants:
        sys.stderr.write(f"No fault has '{' '.join(texts)}' in 'of', rule, or file of tests.\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="tidemark-mutants-") as folder:
        root = copied(Path(folder))
        # Engine and broker are started by the first tests that ask, and kept for all others.
        home = Settings(home=Path(folder) / "home", engine_port=free_port(), engine_archive=False)
        kafka = Settings(home=Path(folder) / "broker", kafka_port=free_port())
        # The copy's packages come before those of this checkout, which are installed.
        paths = [root / part for part in ("platform", "streaming", "assets")]
        env = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "TIDEMARK_TEST_HOME": str(home.home),
            "TIDEMARK_ENGINE_PORT": str(home.engine_port),
            "TIDEMARK_ENGINE_MEMORY": "2g",
            "TIDEMARK_TEST_BROKER": str(kafka.home),
            "TIDEMARK_KAFKA_PORT": str(kafka.kafka_port),
            # The engine's Python workers would keep modules that have a fault.
            "TIDEMARK_ENGINE_CONF": "spark.python.worker.reuse=false",
        }
        try:
            return run(mutants, root, env)
        except KeyboardInterrupt:
            return INTERRUPTED
        finally:
            broker.process(kafka).stop()
            engine.stop(home)


if __name__ == "__main__":
    sys.exit(main())
