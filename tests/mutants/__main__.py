"""`python -m mutants [WORDS]`: plant the declared faults; with words, some of them.

Exit code 1: one was not seen. 2: one can't be planted, or its tests don't pass, or don't even run,
in the copy.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from mutants.declared import ROOT, Mutant, StaleError, declared
from tidemark import engine
from tidemark.base.settings import Settings
from tidemark.engine.connect import free_port

SEEN, PASSED = 1, 0
"""Exit codes of pytest: a test failed, all passed. Any other says that they did not run."""


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


def tested(root: Path, mutant: Mutant, env: dict[str, str]) -> tuple[int, str]:
    """How pytest ended over a mutant's tests, and what it said."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", mutant.tests]
    command += ["-k", mutant.only] if mutant.only else []
    # A file that is changed within a second, and keeps its size, has the same bytecode to Python.
    env = env | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def run(mutants: Sequence[Mutant], root: Path, env: dict[str, str]) -> int:
    """The exit code, after all were planted in the copy at `root`, one after the other."""
    for wanted in {(m.tests, m.only): m for m in mutants}.values():
        code, said = tested(root, wanted, env)
        if code != PASSED:
            sys.stderr.write(f"{said}\nWithout a fault {wanted.tests} does not pass: see above.\n")
            return 2
    unseen: list[Mutant] = []
    for number, mutant in enumerate(mutants, 1):
        text, begun = (root / mutant.file).read_text(), time.monotonic()
        (root / mutant.file).write_text(mutant.planted(root))
        code, said = tested(root, mutant, env)
        (root / mutant.file).write_text(text)
        if code not in (SEEN, PASSED):
            sys.stderr.write(f"{said}\nWith '{mutant.fault}' the tests do not run: see above.\n")
            return 2
        how = "seen" if code == SEEN else "NOT SEEN"
        took = time.monotonic() - begun
        sys.stdout.write(
            f"{number}/{len(mutants)} {how} {took:4.0f} s  {mutant.rule}: {mutant.fault}\n"
        )
        sys.stdout.flush()
        unseen += [] if code == SEEN else [mutant]
    for mutant in unseen:
        sys.stdout.write(f"not seen by {mutant.tests}: {mutant.fault} ({mutant.file})\n")
    sys.stdout.write(f"{len(mutants) - len(unseen)} of {len(mutants)} faults were seen.\n")
    return 1 if unseen else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("words", nargs="?", default="", help="those with this text in rule or 'of'")
    words = parser.parse_args().words
    mutants = [m for m in declared() if words in f"{m.of}: {m.rule}"]
    try:
        for mutant in mutants:
            mutant.planted(ROOT)
    except StaleError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if not mutants:
        sys.stderr.write(f"No fault has '{words}' in what it is of, or in its rule.\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="tidemark-mutants-") as folder:
        root, home, port = copied(Path(folder)), Path(folder) / "home", free_port()
        # The copy's packages come before those of this checkout, which are installed.
        paths = [root / part for part in ("platform", "streaming", "assets")]
        env = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "TIDEMARK_TEST_HOME": str(home),
            "TIDEMARK_ENGINE_PORT": str(port),
            "TIDEMARK_ENGINE_MEMORY": "2g",
        }
        try:
            return run(mutants, root, env)
        finally:
            engine.stop(Settings(home=home, engine_port=port, engine_archive=False))


if __name__ == "__main__":
    sys.exit(main())
