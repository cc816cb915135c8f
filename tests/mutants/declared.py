"""The faults that are declared, and the table that is made of them.

Each fault replaces one text of a file, which is there exactly once, by another. The tests of its
group, those that its own `only` or the group's selects, must fail with it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DECLARED = Path(__file__).with_name("declared")


class StaleError(Exception):
    """A fault whose old text is not there any more, or more than once."""


@dataclass(frozen=True)
class Mutant:
    """A fault that tests must see.

    Args:
        of: what it is a fault of.
        rule: what is so without it.
        fault: what is so with it.
        file: where it is planted, from the checkout's root.
        old, new: the text that is replaced, and that by which it is.
        tests: a file of tests.
        only: which of its tests, as pytest's `-k` takes it; all where it is empty.
    """

    of: str
    rule: str
    fault: str
    file: str
    old: str
    new: str
    tests: str
    only: str

    def planted(self, root: Path) -> str:
        """The file's text with the fault.

        Raises:
            StaleError: the old text is not there exactly once.
        """
        text = (root / self.file).read_text()
        if (found := text.count(self.old)) != 1:
            raise StaleError(
                f"'{self.rule}' can't be broken: its old text is {found} times in {self.file}."
            )
        return text.replace(self.old, self.new)


def declared(folder: Path = DECLARED) -> list[Mutant]:
    """All that the files of a folder declare, in their order."""
    return [
        Mutant(**{"only": group.get("only", ""), **fault, "of": group["of"]}, tests=group["tests"])
        for file in sorted(folder.glob("*.yaml"))
        for group in _groups(file)
        for fault in group["faults"]
    ]


def _groups(file: Path) -> list[dict[str, Any]]:
    return yaml.safe_load(file.read_text())


def table(mutants: list[Mutant]) -> str:
    """The table of docs/testing.md."""
    lines = ["| of | rule | planted fault | tests |", "| --- | --- | --- | --- |"]
    lines += [f"| {m.of} | {m.rule} | {m.fault} | `{Path(m.tests).name}` |" for m in mutants]
    return "\n".join(lines)
