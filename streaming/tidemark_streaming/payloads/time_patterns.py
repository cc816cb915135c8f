"""Patterns of times, with Spark's letters, as regular expressions that turn times into ISO 8601.

`TimeFormats` describes the letters.
"""

import re
from typing import Any, NamedTuple

from tidemark.base.errors import DefinitionError
from tidemark.store.rows import compute as pc

_Texts = Any
"""An Arrow array or chunked array of STRING."""

_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_SHORT_MONTHS = tuple(month[:3] for month in _MONTHS)
_PARTS = {
    "yyyy": r"\d{4}",
    "yy": r"\d{2}",
    "MMMM": rf"(?i:{'|'.join(_MONTHS)})",
    "MMM": rf"(?i:{'|'.join(_SHORT_MONTHS)})",
    "MM": r"\d{2}",
    "M": r"\d{1,2}",
    "dd": r"\d{2}",
    "d": r"\d{1,2}",
    "HH": r"\d{2}",
    "H": r"\d{1,2}",
    "hh": r"0[1-9]|1[0-2]",
    "h": r"0?[1-9]|1[0-2]",
    "a": r"(?i:[AP]M)",
    "mm": r"\d{2}",
    "ss": r"\d{2}",
    "XXX": r"Z|[+-]\d{2}:\d{2}",
    "XX": r"Z|[+-]\d{4}",
    "Z": r"[+-]\d{4}",
}
_MICROS = 6
_MAX_DIGITS = 9
"""The most digits of a second: nanoseconds."""
_LETTERS = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([^A-Za-z'])")


_HALF_DAYS = [
    ("T(?i:AM)12:", "T00:"),
    ("T(?i:AM)", "T"),
    ("T(?i:PM)12:", "T12:"),
    *((f"T(?i:PM)0?{hour}:", f"T{hour + 12}:") for hour in range(1, 12)),
]
"""Replacements of a half of a day and an hour, such as `TPM1:`, by an hour of 24: `T13:`."""
SHORTS = [
    (rf"{before}(\d){after}", rf"{before}0\1{after}".removesuffix("$"))
    for before, after in (("-", "-"), ("-", "T"), ("-", "$"), ("T", ":"))
]
"""Replacements of a month, a day or an hour of one digit. Each replacement applies at most once."""


class Pattern:
    """A pattern of times as a regular expression.

    Attributes:
        expression: the regular expression.
        iso: the replacement that turns a match into ISO 8601, except that a month may be a name,
            that the hour may follow the half of its day, as in `TPM1:05`, and that numbers may have
            one digit.
        has_month_names: whether a month is a name.
        has_half_days: whether the hour follows the half of its day.
    """

    def __init__(self, pattern: str) -> None:
        parsed = _parse_pattern(pattern)
        if not parsed.is_complete():
            raise _pattern_error(pattern)
        self.expression = f"^{parsed.expression}$"
        self.iso = parsed.iso_replacement()
        self.has_month_names = not parsed.letters.isdisjoint(("MMM", "MMMM"))
        self.has_half_days = "h" in parsed.groups
        self._months = _MONTHS if "MMMM" in parsed.letters else _SHORT_MONTHS

    def as_iso(self, texts: _Texts) -> _Texts:
        """Return texts in the form of ISO 8601; null if a text does not match the pattern."""
        replacements = [(self.expression, self.iso)]
        if self.has_month_names:
            for number, name in enumerate(self._months, 1):
                replacements.append((f"-(?i:{name})-", f"-{number:02}-"))
        if self.has_half_days:
            replacements += _HALF_DAYS
        replacements += SHORTS
        iso = keep_matching(texts, self.expression)
        for expression, replacement in replacements:
            iso = pc.replace_substring_regex(iso, expression, replacement, max_replacements=1)
        return iso


class _ParsedPattern(NamedTuple):
    """The parts of a pattern.

    Attributes:
        expression: a regular expression with one group for each part of a time.
        groups: the number of the group of each part, by its letter; offsets have the letter X.
        letters: the parts as the pattern writes them, such as `MMM`.
    """

    expression: str
    groups: dict[str, int]
    letters: set[str]

    def is_complete(self) -> bool:
        """Return whether the parts make a time: a date, and an hour of 24 or of half a day."""
        hours = {"H", "h", "a"} & self.groups.keys()
        has_hour_or_none = hours in (set(), {"H"}, {"h", "a"})
        return has_hour_or_none and self.groups.keys() >= {"y", "M", "d"}

    def iso_replacement(self) -> str:
        """Return the replacement that turns a match into ISO 8601 (see `Pattern.iso`)."""
        century = "20" if "yy" in self.letters else ""
        iso = century + self._group_reference("y") + "-" + self._group_reference("M") + "-"
        iso += self._group_reference("d")
        if self.groups.keys() - {"y", "M", "d"}:
            if "h" in self.groups:
                iso += "T" + self._group_reference("a") + self._group_reference("h")
            else:
                iso += "T" + self._group_reference("H")
            iso += ":" + self._group_reference("m") + ":" + self._group_reference("s")
        if "S" in self.groups:
            iso += "." + self._group_reference("S")
        if "X" in self.groups:
            iso += self._group_reference("X")
        return iso

    def _group_reference(self, part: str) -> str:
        """Return a reference to the group of a part; `00` if the pattern lacks the part."""
        if part in self.groups:
            return rf"\{self.groups[part]}"
        return "00"


def _parse_pattern(pattern: str) -> _ParsedPattern:
    groups = dict[str, int]()
    written = set[str]()
    expression = ""
    index = 0
    while index < len(pattern):
        part = _LETTERS.match(pattern, index)
        if part is None:
            raise _pattern_error(pattern)
        index = part.end()
        quoted, letter, other = part.groups()
        if letter is None:
            text = other if quoted is None else quoted.replace("''", "'") or "'"
            expression += re.escape(text)
            continue
        letters = part[0]
        group = _time_group(letters)
        name = "X" if letter == "Z" else letter
        if group is None or name in groups:
            raise _pattern_error(pattern)
        groups[name] = len(groups) + 1
        written.add(letters)
        expression += group
    return _ParsedPattern(expression, groups, written)


def _time_group(letters: str) -> str | None:
    """Return the regular expression of a part of a time, as one group; None for another part.

    Of the digits of a second beyond microseconds, none is in the group.
    """
    if letters in _PARTS:
        return f"({_PARTS[letters]})"
    digits = len(letters)
    if set(letters) != {"S"} or digits > _MAX_DIGITS:
        return None
    if digits <= _MICROS:
        return rf"(\d{{{digits}}})"
    return rf"(\d{{{_MICROS}}})\d{{{digits - _MICROS}}}"


def _pattern_error(pattern: str) -> DefinitionError:
    return DefinitionError(
        f"The timestamp pattern '{pattern}' is not supported: it needs yyyy or yy, MM or MMM, "
        "and dd, and may have HH (or hh with a), mm, ss, S to SSSSSSSSS, XXX or XX, each once, and "
        "text in single quotes."
    )


def keep_matching(texts: _Texts, expression: str) -> _Texts:
    """Return texts; null instead of a text that does not match a regular expression."""
    matches = pc.match_substring_regex(texts, expression)
    if pc.all(matches).as_py() is not False:
        return texts
    return pc.if_else(matches, texts, None)
