"""Check the language of the documentation, the docstrings, the messages and the names.

Usage: `lint_language.py [--count]`. It prints each hit as `file:line: rule: text`, and exits with 1
if there are any. `--count` prints the number of hits of each rule.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from readability import FILLERS, bound_name, line_of

ROOT = Path(__file__).parents[1]
CODE = ("platform", "streaming", "assets", "benchmarks")
PROSE = ("docs", "README.md", "CHANGELOG.md")

WORDS = {
    r"\banew\b": "use 'again', or a verb with re-",
    r"\b(amid|beside)\b": "use 'next to' or 'in parallel'",
    r"\bmeanwhile\b": "use 'in the meantime'",
    r"\b(tells?|told|telling)\b": "use 'report', 'show', 'determine' or 'specify'",
    r"\bmend(s|ed|ing)?\b": "use 'fix'",
    r"\b(somebody|nobody|whoever|whatever)\b": "name who acts",
    r"\bgone\b": "use 'deleted', 'expired' or 'exited'",
    r"\bbesides\b": "use 'in addition to' or 'other than'",
    r"\bon (its|their) way\b": "use a verb: 'before they are appended'",
    r"\bamong the late\b": "use a noun: 'late events'",
    r"\bfor good\b": "use 'permanently'",
    r"\bhow many-?th\b": "use 'number'",
}
"""Expressions that texts must not have, with what to write instead."""

OPENINGS = re.compile(r"(?:Of|By|What|Who|Whether|Where) ")
"""Words with which a sentence of the documentation must not start, unless it is a question."""

NOT_VERBS = frozenset(
    [
        "a",
        "all",
        "an",
        "and",
        "any",
        "as",
        "at",
        "both",
        "by",
        "each",
        "every",
        "for",
        "from",
        "how",
        "if",
        "in",
        "it",
        "its",
        "no",
        "not",
        "nothing",
        "of",
        "on",
        "one",
        "only",
        "or",
        "some",
        "such",
        "that",
        "the",
        "their",
        "these",
        "they",
        "this",
        "those",
        "to",
        "two",
        "what",
        "when",
        "where",
        "whether",
        "which",
        "who",
        "whose",
        "with",
    ]
)
"""Words with which the docstring of a function can't start."""

PARTICIPLES = re.compile(
    r"_?(?:\w+ed|told|gone|held|kept|made|seen|taken|given|begun|shown|written)"
)
NO_PARTICIPLES = frozenset({"embed", "feed", "need", "proceed", "seed", "speed", "succeed"})
VERBS = re.compile(
    r"(add|are|check|count|decode|drop|fill|find|handle|has|is|list|parse|plan|print|read|recompute"
    r"|run|select|validate|wait|warn|write)_"
)
"""First words of a name that may end with a participle, as in `select_changed` or `is_locked`."""
WITHOUT_FILLERS = (
    *(f"platform/tidemark/{name}/" for name in ("charts", "compute", "verify")),
    *(
        f"streaming/tidemark_streaming/{name}/"
        for name in ("cli", "derived", "files", "kafka", "scenario")
    ),
    *(
        f"assets/tidemark_assets/{name}/"
        for name in ("base", "checks", "jobs", "metadata", "tables")
    ),
)
"""Packages whose variables and parameters all say what they are."""
SIDES = frozenset({"left", "other", "others"})
"""Fillers that are good names for the sides of a join, and for the operand of a comparison."""
ENDINGS = re.compile(r"(?:s|es|ed|er|ers|est|ing|al)?")


class Hit(NamedTuple):
    """A line that breaks a rule."""

    file: Path
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: {self.text.strip()[:100]}"


def main(arguments: list[str]) -> int:
    """Print the hits. Return the exit code."""
    hits = sorted(_hits())
    if "--count" in arguments:
        for rule, count in Counter(hit.rule for hit in hits).most_common():
            print(f"{count:6} {rule}")  # noqa: T201
        return 0
    for hit in hits:
        print(hit)  # noqa: T201
    return 1 if hits else 0


def _hits() -> Iterator[Hit]:
    for folder in CODE:
        files = sorted((ROOT / folder).rglob("*.py"))
        for file in files:
            yield from _in_code(file)
        yield from _alike(files)
    for place in PROSE:
        path = ROOT / place
        for file in sorted(path.rglob("*.md")) if path.is_dir() else [path]:
            yield from _in_prose(file)


def _in_prose(file: Path) -> Iterator[Hit]:
    is_code = False
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        if is_code:
            continue
        text = re.sub(r"`[^`]*`", "`", line)
        yield from _words(file, number, text)
        for sentence in re.findall(r"(?:^|[.:;] |\| |[-*] )([A-Z][^.?|]*\??)", text):
            if OPENINGS.match(sentence) and not sentence.endswith("?"):
                yield Hit(file.relative_to(ROOT), number, "opening", sentence)


def _in_code(file: Path) -> Iterator[Hit]:
    source = file.read_text()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        if kind in ("COMMENT", "STRING", "FSTRING_MIDDLE"):
            for number, line in enumerate(token.string.splitlines(), token.start[0]):
                yield from _words(file, number, re.sub(r"`[^`]*`", "`", line))
    has_no_fillers = str(file.relative_to(ROOT)).startswith(WITHOUT_FILLERS)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _in_function(file, node)
        name = bound_name(node)
        if has_no_fillers and name is not None and name in FILLERS - SIDES:
            yield Hit(file.relative_to(ROOT), line_of(node), "filler", name)


def _in_function(file: Path, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Hit]:
    where = file.relative_to(ROOT), node.lineno
    is_property = any("property" in ast.unparse(d) for d in node.decorator_list)
    is_asset = any("asset" in ast.unparse(d) for d in node.decorator_list)
    text = "" if is_asset else ast.get_docstring(node) or ""
    if text and not is_property and text.split()[0].lower() in NOT_VERBS:
        yield Hit(*where, "docstring", text.partition("\n")[0])
    name = node.name
    bare = name.strip("_")
    is_participle = PARTICIPLES.fullmatch(name) and bare not in NO_PARTICIPLES
    if not is_property and is_participle and not VERBS.match(bare):
        yield Hit(*where, "participle", f"def {name}")


def _words(file: Path, number: int, text: str) -> Iterator[Hit]:
    for expression, instead in WORDS.items():
        for found in re.finditer(expression, text, re.IGNORECASE):
            yield Hit(file.relative_to(ROOT), number, "word", f"'{found[0]}': {instead}: {text}")


def _alike(files: list[Path]) -> Iterator[Hit]:
    """Yield modules of one folder whose names differ by an ending."""
    for one, other in combinations(files, 2):
        short, long = sorted((one.stem, other.stem), key=len)
        stem = short.rstrip("e")
        is_near = one.parent == other.parent and len(short) > 3 and long.startswith(stem)
        if is_near and ENDINGS.fullmatch(long.removeprefix(stem)):
            file = (one if one.stem == long else other).relative_to(ROOT)
            yield Hit(file, 1, "module", f"{short}.py and {long}.py")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
