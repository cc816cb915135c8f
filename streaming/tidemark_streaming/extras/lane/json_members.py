"""Split JSON objects into the texts of their members, with Spark's expressions.

Spark's own JSON functions change values: a number becomes a DOUBLE before it is text, the last of
two members with the same name counts, and text after an object is ignored. Here, one regular
expression must match the whole text, so each member keeps its original text. The expression does
not validate commas and colons: Spark's parser does, when it reads the names of the members.
"""

from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark_streaming.payloads.json_values import (
    NOT_AN_OBJECT,
    NOT_UTF8,
    duplicate_reason,
)
from tidemark_streaming.payloads.nested import MAX_DEPTH

# Each quantifier is possessive, so that Java matches without backtracking and without recursion.
_SPACE = r"[ \t\n\r]*+"
_STRING = r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*+"'
_NUMBER = r"-?+(?:0|[1-9][0-9]*+)(?:[.][0-9]++)?+(?:[eE][+-]?+[0-9]++)?+"
_SCALAR = rf"{_STRING}|{_NUMBER}|true|false|null"
_WHOLE_CHARACTERS = (
    r'^(?i)"(?:[^"\\]++|\\[^u]|\\u(?!d[89a-f])[0-9a-f]{4}'
    r'|\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2})*+"\z'
)
"""Matches JSON strings without lone surrogates."""


def _nested_values(levels: int) -> str:
    """Return a regular expression for objects and arrays with at most this many levels."""
    inner = f"{_SCALAR}|[ \t\n\r:,]++"
    if levels:
        return rf"[\[{{](?:{inner}|{_nested_values(levels - 1)})*+[\]}}]"
    return r"(?!)"


_NESTED = _nested_values(MAX_DEPTH - 1)
_MEMBER = rf"{_SPACE}[{{,]{_SPACE}{_STRING}{_SPACE}:{_SPACE}({_SCALAR}|{_NESTED})"
_END = rf"{_SPACE}[{{]?+{_SPACE}[}}]{_SPACE}\z"
_PARTS = rf"\G(?:{_MEMBER}|{_END})"
"""Matches the next member of an object, or the end of the object if the text ends there, too."""


def member_names(text: Column) -> Column:
    """Return the names of an object's members; null if the text does not begin with an object."""
    return F.json_object_keys(text)


def member_texts(text: Column) -> Column:
    """Return the original texts of an object's members, in order.

    If nothing follows the object, an empty text is added. `fault` needs it to detect text after the
    object.
    """
    return F.regexp_extract_all(text, F.lit(_PARTS), F.lit(1))


def find_fault(text: Column, names: Column, texts: Column, columns: Iterable[str]) -> Column:
    """Return why a text is not an object with each of the wanted members at most once, else null.

    Args:
        names: the result of `member_names`.
        texts: the result of `member_texts`.
    """
    is_whole = (F.size(names) + 1 == F.size(texts)) & (F.try_element_at(texts, F.lit(-1)) == "")
    faults = [
        F.when(~F.is_valid_utf8(text), NOT_UTF8),
        F.when(~F.coalesce(is_whole, F.lit(False)), NOT_AN_OBJECT),
    ]
    for name in columns:
        occurrences = F.size(names) - F.size(F.array_remove(names, name))
        faults.append(F.when(occurrences > 1, F.lit(duplicate_reason(name))))
    return F.coalesce(*faults)


def extract_member(name: str, names: Column, texts: Column) -> Column:
    """Return the original text of the member `name`; null if the object does not have the member,
    or the member is JSON's null.

    Args:
        names: the result of `member_names`.
        texts: the result of `member_texts`.
    """
    index = F.nullif(F.array_position(names, name), F.lit(0).cast("bigint"))
    return F.nullif(F.try_element_at(texts, index.cast("int")), F.lit("null"))


def is_string(text: Column) -> Column:
    """Return whether a member is a JSON string."""
    return F.startswith(text, F.lit('"'))


def string_value(text: Column) -> Column:
    """Return the value of a JSON string; null if the string has lone surrogates."""
    parsed = F.from_json(F.concat(F.lit("["), text, F.lit("]")), "ARRAY<STRING>")
    plain = F.substring(text, F.lit(2), F.length(text) - 2)
    escaped = F.when(F.rlike(text, F.lit(_WHOLE_CHARACTERS)), F.try_element_at(parsed, F.lit(1)))
    return F.when(F.contains(text, F.lit("\\")), escaped).otherwise(plain)
