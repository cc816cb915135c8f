"""YAML whose every node knows its file and line, so that a complaint can name them.

What a node says is read from the text that is written there: `1.11` is exact for a decimal, and
`no` in a column of strings is the word.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time
from pathlib import Path

import yaml

from tidemark.base.errors import DefinitionError
from tidemark.base.instants import BEGINNING, INFINITY, duration, instant

_TAG = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[+-]?(0|[1-9]\d*)")


class ScenarioError(DefinitionError):
    """A scenario is malformed; the sentence begins with its file and line."""


@dataclass(frozen=True)
class Node:
    """A value in a scenario's file."""

    path: Path
    raw: yaml.Node

    def wrong(self, sentence: str) -> ScenarioError:
        """The error that says so of this node."""
        return ScenarioError(f"{self.path}:{self.raw.start_mark.line + 1}: {sentence}")

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """What the definitions complain of in here is said of this node."""
        try:
            yield
        except ScenarioError:
            raise
        except DefinitionError as error:
            raise self.wrong(str(error)) from None

    def __str__(self) -> str:
        if isinstance(self.raw, yaml.MappingNode):
            return "a mapping"
        if isinstance(self.raw, yaml.SequenceNode):
            return "a list"
        return "nothing" if self.empty else f"'{self.raw.value}'"

    @property
    def empty(self) -> bool:
        """Whether it is null: `null`, `~` or nothing at all."""
        return self.raw.tag == f"{_TAG}null"

    @property
    def several(self) -> bool:
        """Whether it is a list."""
        return isinstance(self.raw, yaml.SequenceNode)

    def entries(self, what: str) -> list[tuple["Node", "Node"]]:
        """The keys and values of a mapping, in their order; no key is there twice."""
        if not isinstance(self.raw, yaml.MappingNode):
            raise self.wrong(f"{what} is a mapping, not {self}.")
        pairs = [(Node(self.path, k), Node(self.path, v)) for k, v in self.raw.value]
        names = [key.text("a key") for key, _ in pairs]
        for number, (key, _) in enumerate(pairs):
            if names[number] in names[:number]:
                raise key.wrong(f"{key} is given twice.")
        return pairs

    def fields(
        self, what: str, required: Sequence[str], optional: Sequence[str] = ()
    ) -> dict[str, "Node"]:
        """The values of a mapping whose keys are known."""
        allowed = (*required, *optional)
        found = {}
        for key, value in self.entries(what):
            if key.raw.value not in allowed:
                raise key.wrong(f"{key} is not part of {what}; {_allowed(allowed)}.")
            found[key.raw.value] = value
        for name in required:
            if name not in found:
                raise self.wrong(f"{what} needs '{name}'; {_allowed(allowed)}.")
        return found

    def choice(self, what: str, choices: Iterable[str]) -> tuple[str, "Node"]:
        """The one key of a mapping that says which of several things is meant, and its value."""
        allowed = _allowed(choices)
        if isinstance(self.raw, yaml.ScalarNode) and self.raw.value in choices:
            raise self.wrong(f"{what} is a mapping: write {{{self.raw.value}: …}}.")
        if not isinstance(self.raw, yaml.MappingNode):
            raise self.wrong(f"{self} is not {what}; {allowed}.")
        pairs = self.entries(what)
        if len(pairs) != 1:
            raise self.wrong(f"{what} has one key, not {len(pairs)}; {allowed}.")
        ((key, value),) = pairs
        if key.raw.value not in choices:
            raise key.wrong(f"{key} is not {what}; {allowed}.")
        return key.raw.value, value

    def items(self, what: str) -> list["Node"]:
        """The items of a list."""
        if not isinstance(self.raw, yaml.SequenceNode):
            raise self.wrong(f"{what} is a list, not {self}.")
        return [Node(self.path, item) for item in self.raw.value]

    def text(self, what: str) -> str:
        """A single value, as it is written."""
        if not isinstance(self.raw, yaml.ScalarNode) or self.empty:
            raise self.wrong(f"{what} is a single value, not {self}.")
        return self.raw.value

    def word(self, what: str, words: Sequence[str]) -> str:
        """One of a few words."""
        if self.text(what) not in words:
            raise self.wrong(f"{self} is not {what}; {_allowed(words)}.")
        return self.text(what)

    def integer(self, what: str, least: int = 0) -> int:
        """A whole number that is not less than `least`."""
        if not _INTEGER.fullmatch(self.text(what)) or int(self.text(what)) < least:
            raise self.wrong(f"{what} is a whole number of {least} or more, not {self}.")
        return int(self.text(what))

    def boolean(self, what: str) -> bool:
        """`true` or `false`."""
        text = self.text(what).lower()
        if text not in ("true", "false"):
            raise self.wrong(f"{what} is true or false, not {self}.")
        return text == "true"

    def duration(self, what: str, *, negative: bool = False) -> str:
        """A length of time, checked, as it is written."""
        with self.blamed():
            length = duration(self.text(what))
        if abs(length) > INFINITY - BEGINNING:
            raise self.wrong(f"{what} is shorter than all of time, unlike {self}.")
        if length < 0 and not negative:
            raise self.wrong(f"{what} is zero or more, not {self}.")
        return self.text(what)

    def instant(self, what: str) -> int:
        """A point in time, in microseconds; UTC where it names no zone."""
        text = self.text(what)
        with self.blamed():
            found = instant(text if self._moment is None else self._moment)
        if not BEGINNING < found < INFINITY:
            raise self.wrong(f"{what} is within the years 1 to 9999, unlike {self}.")
        return found

    @property
    def _moment(self) -> datetime | None:
        """What YAML itself takes for a date or a time, in more forms than ISO 8601 has."""
        if self.raw.tag != f"{_TAG}timestamp":
            return None
        try:
            found = yaml.SafeLoader("").construct_object(self.raw)
        except ValueError:
            return None
        if isinstance(found, datetime):
            return found
        return datetime.combine(found, time()) if isinstance(found, date) else None


def read(path: Path) -> Node:
    """The root of a YAML file.

    Raises:
        ScenarioError: the file can't be read, is not YAML, or is empty.
    """
    text = _text(path)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise ScenarioError(f"{path}:{line}: this is not YAML: {error.problem}.") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ScenarioError(f"{path}:{line}: this is not YAML: {error.reason}.") from None
    except RecursionError:
        raise ScenarioError(f"{path}:1: this is not a scenario: it is nested too deep.") from None
    if root is None:
        raise ScenarioError(f"{path}:1: the file is empty; a scenario is a mapping.")
    return Node(path, root)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ScenarioError(f"{path}: the file can't be read: {reason}.") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ScenarioError(f"{path}:{line}: the file is not text in UTF-8.") from None


def _allowed(names: Iterable[str]) -> str:
    return f"allowed are {', '.join(names)}" if list(names) else "nothing is allowed in it"
