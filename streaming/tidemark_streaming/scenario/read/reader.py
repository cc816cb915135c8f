"""YAML nodes that know their file and line, so that error messages can name them.

Values are parsed from the text in the file: `1.11` is exact for a decimal, and `no` in a column of
strings is the word `no`, not false.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time
from pathlib import Path

import yaml

from tidemark.base.errors import DefinitionError
from tidemark.base.instants import BEGINNING, INFINITY, parse_duration, parse_instant

_TAG = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[+-]?(0|[1-9]\d*)")


class ScenarioError(DefinitionError):
    """An error in a scenario file. The message begins with the file and line."""


@dataclass(frozen=True)
class Node:
    """A value in a scenario's file, with its place for error messages.

    The argument `what` of a method names the value in error messages.
    """

    path: Path
    raw: yaml.Node

    def error(self, message: str) -> ScenarioError:
        """Return an error whose message begins with the file and line of this node."""
        return ScenarioError(f"{self.path}:{self.raw.start_mark.line + 1}: {message}")

    def locate_text(self, line: int, column: int) -> str:
        """Return the file and line of a line in this text, for error messages.

        In a block of lines (`|`), the place is exact. Other texts may be folded or have escapes.
        """
        begin = self.raw.start_mark
        if not isinstance(self.raw, yaml.ScalarNode) or self.raw.style != "|":
            return f"{self.path}:{begin.line + 1}: line {line}, column {column}"
        # The text begins in the line behind the `|`. Its lines have no indentation.
        lines = self.raw.value.rstrip("\n").split("\n")
        number = min(line, len(lines))
        written = str(begin.buffer).split("\n")[begin.line + number]
        indent = len(written) - len(lines[number - 1])
        return f"{self.path}:{begin.line + number + 1}:{indent + column}"

    @property
    def plain_value(self) -> object:
        """The value as Python's YAML reads it: a number, a text, a date, a list, …"""
        try:
            return yaml.SafeLoader("").construct_object(self.raw, deep=True)
        except (ValueError, yaml.YAMLError):
            raise self.error(f"{self} is not a value: write it between quotes.") from None

    @contextmanager
    def locate_errors(self) -> Iterator[None]:
        """Raise each DefinitionError of the `with` block as a ScenarioError at this node."""
        try:
            yield
        except ScenarioError:
            raise
        except DefinitionError as error:
            raise self.error(str(error)) from None

    def __str__(self) -> str:
        if isinstance(self.raw, yaml.MappingNode):
            return "a mapping"
        if isinstance(self.raw, yaml.SequenceNode):
            return "a list"
        if self.is_null:
            return "nothing"
        return f"'{self.raw.value}'"

    @property
    def is_null(self) -> bool:
        """Return whether the value is null: `null`, `~` or nothing at all."""
        return self.raw.tag == f"{_TAG}null"

    @property
    def is_mapping(self) -> bool:
        """Return whether the value is a mapping."""
        return isinstance(self.raw, yaml.MappingNode)

    @property
    def is_list(self) -> bool:
        """Return whether the value is a list."""
        return isinstance(self.raw, yaml.SequenceNode)

    def read_entries(self, subject: str) -> list[tuple["Node", "Node"]]:
        """Return the keys and values of a mapping in order, after a check that no key occurs
        twice."""
        if not isinstance(self.raw, yaml.MappingNode):
            raise self.error(f"{subject} must be a mapping (got {self}).")
        pairs = [(Node(self.path, k), Node(self.path, v)) for k, v in self.raw.value]
        names = [key.read_text("a key") for key, _ in pairs]
        for number, (key, _) in enumerate(pairs):
            if names[number] in names[:number]:
                raise key.error(f"{key} occurs twice.")
        return pairs

    def read_fields(
        self, subject: str, required: Sequence[str], optional: Sequence[str] = ()
    ) -> dict[str, "Node"]:
        """Return the values of a mapping by key, after a check that it has the required keys and no
        unknown ones."""
        allowed = (*required, *optional)
        by_name = {}
        for key, value in self.read_entries(subject):
            if key.raw.value not in allowed:
                raise key.error(f"{key} is not part of {subject}; {_name_choices(allowed)}.")
            by_name[key.raw.value] = value
        for name in required:
            if name not in by_name:
                raise self.error(f"{subject} needs '{name}'; {_name_choices(allowed)}.")
        return by_name

    def read_choice(self, subject: str, choices: Iterable[str]) -> tuple[str, "Node"]:
        """Return the only key of a mapping, which selects one of several choices, and its value."""
        allowed = _name_choices(choices)
        if isinstance(self.raw, yaml.ScalarNode) and self.raw.value in choices:
            raise self.error(f"{subject} must be a mapping: write {{{self.raw.value}: …}}.")
        if not isinstance(self.raw, yaml.MappingNode):
            raise self.error(f"{self} is not {subject}; {allowed}.")
        pairs = self.read_entries(subject)
        if len(pairs) != 1:
            raise self.error(f"{subject} must have exactly one key (got {len(pairs)}); {allowed}.")
        ((key, value),) = pairs
        if key.raw.value not in choices:
            raise key.error(f"{key} is not {subject}; {allowed}.")
        return key.raw.value, value

    def read_items(self, subject: str) -> list["Node"]:
        """Return the items of a list."""
        if not isinstance(self.raw, yaml.SequenceNode):
            raise self.error(f"{subject} must be a list (got {self}).")
        return [Node(self.path, item) for item in self.raw.value]

    def read_text(self, subject: str) -> str:
        """Return the text of a scalar, as it is written."""
        if not isinstance(self.raw, yaml.ScalarNode) or self.is_null:
            raise self.error(f"{subject} must be a single value (got {self}).")
        return self.raw.value

    def read_word(self, subject: str, words: Sequence[str]) -> str:
        """Return the value, after a check that it is one of `words`."""
        if self.read_text(subject) not in words:
            raise self.error(f"{self} is not {subject}; {_name_choices(words)}.")
        return self.read_text(subject)

    def read_integer(self, subject: str, minimum: int = 0) -> int:
        """Return an integer that is at least `minimum`."""
        if (
            not _INTEGER.fullmatch(self.read_text(subject))
            or int(self.read_text(subject)) < minimum
        ):
            raise self.error(f"{subject} must be an integer of at least {minimum} (got {self}).")
        return int(self.read_text(subject))

    def read_boolean(self, subject: str) -> bool:
        """Return `true` or `false`."""
        text = self.read_text(subject).lower()
        if text not in ("true", "false"):
            raise self.error(f"{subject} must be true or false (got {self}).")
        return text == "true"

    def read_duration(self, subject: str, *, negative: bool = False) -> str:
        """Return a duration as it is written, after a check that it is valid."""
        with self.locate_errors():
            length = parse_duration(self.read_text(subject))
        if length < 0 and not negative:
            raise self.error(f"{subject} must be zero or greater (got {self}).")
        return self.read_text(subject)

    def read_instant(self, subject: str) -> int:
        """Return an instant in microseconds; without a zone it is in UTC."""
        text = self.read_text(subject)
        with self.locate_errors():
            micros = parse_instant(text if self._date_value is None else self._date_value)
        if not BEGINNING < micros < INFINITY:
            raise self.error(f"{subject} must be in the years 1 to 9999 (got {self}).")
        return micros

    @property
    def _date_value(self) -> datetime | None:
        """The value of a YAML date or time, which has more forms than ISO 8601; None for other
        values."""
        if self.raw.tag != f"{_TAG}timestamp":
            return None
        try:
            parsed = yaml.SafeLoader("").construct_object(self.raw)
        except ValueError:
            return None
        if isinstance(parsed, datetime):
            return parsed
        if isinstance(parsed, date):
            return datetime.combine(parsed, time())
        return None


def read_yaml(path: Path) -> Node:
    """Return the root of a YAML file."""
    text = read_file(path)
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
        raise ScenarioError(
            f"{path}:1: this is not a scenario: it has too many nested levels."
        ) from None
    if root is None:
        raise ScenarioError(f"{path}:1: the file is empty, but a scenario must be a mapping.")
    return Node(path, root)


def read_file(path: Path) -> str:
    """Return the text of a file."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ScenarioError(f"{path}: the file can't be read: {reason}.") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ScenarioError(f"{path}:{line}: the file is not valid UTF-8 text.") from None


def _name_choices(names: Iterable[str]) -> str:
    if list(names):
        return f"allowed: {', '.join(names)}"
    return "no keys are allowed"
