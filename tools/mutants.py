"""Change the pure modules in many small ways, and count the changes that no test notices.

Usage: `mutants.py [--only PART] [--workers N]`. mutmut makes the changes, called *mutants*. For
each mutant, it runs the tests that call the changed function. `[tool.mutmut]` in `pyproject.toml`
names the modules and the tests. A surviving mutant shows a missing test, or a change that has no
effect. `tools/mutants.toml` records how many mutants may survive in each module, and why. The exit
code is 1 if more mutants survive.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from mutmut.stats import status_by_exit_code

ROOT = Path(__file__).parents[1]
TREE = ROOT / "build" / "mutants"
"""A tree in which the platform's package is at the root: mutmut takes a path for a module name."""

COLUMNS = ("killed", "survived", "timeout", "no tests")


def main() -> None:
    """Run the mutants, print them by module, and exit with 1 if too many survive."""
    parser = argparse.ArgumentParser(description="Mutation tests of the pure modules.")
    parser.add_argument("--only", default="", help="a part of the names of modules or functions")
    parser.add_argument("--workers", type=int, default=2, help="processes that run tests")
    options = parser.parse_args()
    _make_tree()
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(options.workers)]
    if subprocess.run([*command, f"*{options.only}*"], cwd=TREE, check=False).returncode:
        sys.exit("mutmut stopped: its last lines say why. The tests must pass without a mutant.")
    found = dict(_read_results(options.only))
    _write_modules(_count_by_module(found))
    _write_survivors([name for name, status in found.items() if status == "survived"])
    if excess := _list_excess(_count_by_module(found), _read_limits()):
        sys.exit("\n".join(excess))


def _make_tree() -> None:
    """Create an empty tree with links to the package, the tests and the settings."""
    shutil.rmtree(TREE, ignore_errors=True)
    TREE.mkdir(parents=True)
    (TREE / "tidemark").symlink_to(ROOT / "platform" / "tidemark")
    for name in ("tests", "pyproject.toml"):
        (TREE / name).symlink_to(ROOT / name)


def _read_results(only: str) -> Iterator[tuple[str, str]]:
    """Yield the names of the mutants that ran, with their status."""
    for file in sorted((TREE / "mutants").rglob("*.meta")):
        for name, code in json.loads(file.read_text())["exit_code_by_key"].items():
            if only in name:
                yield name, status_by_exit_code[code]


def _module_of(mutant: str) -> str:
    """Return the module of a mutant, whose name is `module.x_function__mutmut_n`."""
    return mutant.rpartition(".")[0]


def _count_by_module(found: dict[str, str]) -> dict[str, Counter[str]]:
    """Return the number of mutants of each status, by module."""
    counts: dict[str, Counter[str]] = {}
    for name, status in found.items():
        counts.setdefault(_module_of(name), Counter())[status] += 1
    return counts


def _read_limits() -> dict[str, int]:
    """Return the recorded number of survivors of each module."""
    recorded = tomllib.loads((ROOT / "tools" / "mutants.toml").read_text())
    return {module: entry["survivors"] for module, entry in recorded.items()}


def _list_excess(counts: dict[str, Counter[str]], limits: dict[str, int]) -> list[str]:
    """Return a message for each module in which more mutants survived than its limit allows."""
    return [
        f"{module}: {count['survived']} mutants survived, {limits.get(module, 0)} may: add tests, "
        "or record the number in tools/mutants.toml with the reason."
        for module, count in counts.items()
        if count["survived"] > limits.get(module, 0)
    ]


def _write_modules(counts: dict[str, Counter[str]]) -> None:
    """Print a table with the counts of each module, and their sums."""
    total: Counter[str] = sum(counts.values(), Counter())
    width = max(map(len, counts), default=0)
    write("\n" + " " * width + "".join(f"{column:>10}" for column in (*COLUMNS, "other")))
    for module, count in [*counts.items(), ("", total)]:
        numbers = [count[column] for column in COLUMNS]
        shown = (*numbers, count.total() - sum(numbers))
        write(f"{module:<{width}}" + "".join(f"{number:>10,}" for number in shown))


def _write_survivors(mutants: list[str]) -> None:
    """Print the names of mutants, and the command that shows a mutant."""
    for mutant in mutants:
        write(f"survived: {mutant}")
    write(f"To see a mutant: cd {TREE.relative_to(ROOT)} && ../../.venv/bin/mutmut show NAME")


def write(line: str) -> None:
    """Print a line."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
