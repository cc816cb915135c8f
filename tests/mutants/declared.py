"""The faults that are declared, and the table that is made of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DECLARED = Path(__file__).with_name("declared.yaml")


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


def declared(path: Path = DECLARED) -> list[Mutant]:
    """All that a file declares, in its order."""
    groups: list[dict[str, Any]] = yaml.safe_load(path.read_text())
    return [
        Mutant(**{"only": group.get("only", ""), **fault, "of": group["of"]}, tests=group["tests"])
        for group in groups
        for fault in group["faults"]
    ]


def table(mutants: list[Mutant]) -> str:
    """The table of docs/testing.md."""
    lines = ["| of | rule | planted fault | tests |", "| --- | --- | --- | --- |"]
    lines += [f"| {m.of} | {m.rule} | {m.fault} | `{Path(m.tests).name}` |" for m in mutants]
    return "\n".join(lines)
