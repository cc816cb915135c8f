"""Measure how dense the code is and how much its names say, and refuse a figure that got worse.

Usage: `readability.py [--worst N | --list MEASURE | --record] [FOLDER...]`. Without a folder, it
measures the package and exits with 1 if a figure is worse than the recorded one. `--worst` lists
the functions with the most branches, `--list` each line that counts for a measure. `--record`
writes the figures to `readability.toml` after an improvement.
"""

import argparse
import ast
import io
import math
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ("platform", "streaming", "assets")
RECORD = Path(__file__).with_suffix(".toml")

FILLERS = frozenset(
    re.findall(
        r"\w+",
        """
    asked at away by done each found given held here kept known left made mine now odd of one other
    others own place rest some theirs them then there to wanted what whole whose again
    """,
    )
)
"""Names of variables and parameters that do not say what the value is."""

ADVERBS = FILLERS | frozenset(
    re.findall(
        r"\w+",
        """
    after all also any before every first how into last least like most new old patience plus right
    shown since such taken that this through told until upto when who ever meant
    """,
    )
)
"""Names of parameters that need the function's body to be understood."""


@dataclass(frozen=True)
class Measure:
    """A figure of the code.

    Args:
        per: what the number of hits is divided by: a key of `Code.totals`.
        scale: the factor of the quotient: 100 for a percentage.
        others: the figures of five comparable projects.
        has_floor: true if a higher figure is better.
    """

    title: str
    per: str
    scale: int
    aim: float
    others: str
    has_floor: bool = False


MEASURES = {
    "tokens": Measure("tokens per line", "lines", 1, 6.5, "5.5-6.3"),
    "conditionals": Measure("conditional expressions per 1,000 lines", "lines", 1000, 13, "4-13"),
    "comprehensions": Measure("comprehensions per 1,000 lines", "lines", 1000, 20, "7-17"),
    "tuples": Measure("tuple assignments per 1,000 lines", "lines", 1000, 1, "0.2-0.5"),
    "starred": Measure("starred arguments per 1,000 lines", "lines", 1000, 8, "2-7"),
    "fillers": Measure("names that are fillers, %", "names", 100, 1, "0.1-1.2"),
    "one-word": Measure("functions with a one-word name, %", "functions", 100, 30, "21-25"),
    "adverbs": Measure("parameters that are adverbs, %", "parameters", 100, 1, "0.2-0.8"),
    "comments": Measure(
        "lines with a comment, %", "all lines", 100, 2.4, "2.4-5.2", has_floor=True
    ),
}

NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.While,
    ast.comprehension,
    ast.BoolOp,
    ast.ExceptHandler,
    ast.Assert,
)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass
class Code:
    """What was counted in some files.

    Args:
        hits: the number of hits, by measure.
        totals: the numbers of lines of code, all lines, names, functions and parameters.
        listing: each hit of the measure to list.
        functions: the number of branches and the place of each function.
    """

    listed: str | None = None
    hits: Counter[str] = field(default_factory=Counter[str])
    totals: Counter[str] = field(default_factory=Counter[str])
    listing: list[str] = field(default_factory=list[str])
    functions: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])

    def add_file(self, file: Path) -> None:
        text = file.read_text()
        tree = ast.parse(text)
        self._count_tokens(text, _find_docstring_lines(tree))
        for node in ast.walk(tree):
            for measure in _find_hits(node):
                self.hits[measure] += 1
                if measure == self.listed:
                    number = line_of(node)
                    line = text.splitlines()[number - 1]
                    self.listing.append(f"{file}:{number}: {line.strip()}")
            if bound_name(node):
                self.totals["names"] += 1
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.totals["functions"] += 1
                branches = sum(isinstance(inner, BRANCHES) for inner in ast.walk(node))
                self.functions.append((branches, f"{file}:{node.lineno} {node.name}"))
                self._count_parameters(file, node)

    def _count_tokens(self, text: str, docstring_lines: set[int]) -> None:
        code_lines = set[int]()
        comment_lines = set[int]()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            first, last = token.start[0], token.end[0]
            if token.type == tokenize.COMMENT and "noqa" not in token.string:
                comment_lines.add(first)
            if token.type not in NO_CODE and first not in docstring_lines:
                self.hits["tokens"] += 1
                code_lines |= set(range(first, last + 1))
        self.hits["comments"] += len(comment_lines)
        self.totals["lines"] += len(code_lines)
        self.totals["all lines"] += text.count("\n")

    def _count_parameters(self, file: Path, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for parameter in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            if parameter.arg in ("self", "cls"):
                continue
            self.totals["parameters"] += 1
            if parameter.arg in ADVERBS:
                self.hits["adverbs"] += 1
                if self.listed == "adverbs":
                    self.listing.append(
                        f"{file}:{parameter.lineno}: {parameter.arg} of {node.name}"
                    )

    def figures(self) -> dict[str, float]:
        return {
            name: self.hits[name] * measure.scale / max(1, self.totals[measure.per])
            for name, measure in MEASURES.items()
        }


def _find_docstring_lines(tree: ast.AST) -> set[int]:
    lines = set[int]()
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, owners) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            lines |= set(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return lines


def _find_hits(node: ast.AST) -> Iterator[str]:
    """Yield the measures for which a node counts, except parameters and tokens."""
    if isinstance(node, ast.IfExp):
        yield "conditionals"
    if isinstance(node, COMPREHENSIONS):
        yield "comprehensions"
    if isinstance(node, ast.Starred):
        yield "starred"
    if _assigns_tuple(node):
        yield "tuples"
    is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    if is_function and "_" not in node.name.strip("_"):
        yield "one-word"
    if bound_name(node) in FILLERS:
        yield "fillers"


def _assigns_tuple(node: ast.AST) -> bool:
    """Return whether a node packs several assignments into one statement (`a, b = x, y`)."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    return isinstance(node.targets[0], ast.Tuple)


def line_of(node: ast.AST) -> int:
    """Return the number of the line in which a node begins."""
    assert isinstance(node, ast.expr | ast.stmt | ast.arg)
    return node.lineno


def bound_name(node: ast.AST) -> str | None:
    """Return the name of the variable or parameter that a node binds."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.arg) and node.arg not in ("self", "cls"):
        return node.arg
    return None


def measure_folders(folders: Sequence[Path], listed: str | None = None) -> Code:
    """Return what the Python files of some folders have.

    Args:
        listed: the measure whose hits are listed.
    """
    code = Code(listed)
    for folder in folders:
        files = [folder] if folder.is_file() else sorted(folder.rglob("*.py"))
        for file in files:
            code.add_file(file)
    return code


def find_worse_figures(figures: dict[str, float], recorded: dict[str, float]) -> list[str]:
    """Return the measures whose figure is worse than the recorded one."""
    worse: list[str] = []
    for name, measure in MEASURES.items():
        change = figures[name] - recorded[name]
        if measure.has_floor:
            change = -change
        if change > 0:
            worse.append(name)
    return worse


def _print_figures(figures: dict[str, float], recorded: dict[str, float]) -> None:
    print(f"{'now':>7} {'record':>7} {'aim':>5} {'others':>8}")  # noqa: T201
    for name, measure in MEASURES.items():
        numbers = f"{figures[name]:7.2f} {recorded[name]:7.1f} {measure.aim:5} {measure.others:>8}"
        print(f"{numbers}  {measure.title} ({name})")  # noqa: T201


def _record(figures: dict[str, float]) -> None:
    """Write the figures, rounded to one decimal for the worse."""
    lines = [
        "# The worst figures that `make lint` accepts. `readability.py --record` updates them."
    ]
    for name, measure in MEASURES.items():
        rounded = math.floor if measure.has_floor else math.ceil
        lines.append(f"{name} = {rounded(figures[name] * 10) / 10}")
    RECORD.write_text("\n".join(lines) + "\n")


def main(arguments: list[str]) -> int:
    """Print the figures. Return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", nargs="*", type=Path, help="by default, the package")
    parser.add_argument("--worst", type=int, metavar="N", help="list the N worst functions")
    parser.add_argument("--list", choices=[*MEASURES], help="list each hit of a measure")
    parser.add_argument("--record", action="store_true", help="record the figures")
    options = parser.parse_args(arguments)
    folders = options.folders or [ROOT / name for name in PACKAGE]
    code = measure_folders(folders, options.list)
    if options.list or options.worst:
        worst = [f"{branches:4} {place}" for branches, place in sorted(code.functions)[::-1]]
        print("\n".join(code.listing or worst[: options.worst]))  # noqa: T201
        return 0
    figures = code.figures()
    if options.record:
        _record(figures)
    recorded = tomllib.loads(RECORD.read_text())
    _print_figures(figures, recorded)
    if options.folders:
        return 0
    worse = find_worse_figures(figures, recorded)
    for name in worse:
        print(  # noqa: T201
            f"{MEASURES[name].title} got worse. Simplify what you have added, or other code: "
            f"`tools/readability.py --list {name}` and `--worst 20` show where."
        )
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
