"""Protection of columns: how a column's values change before anything is written.

| protection | a value becomes |
| --- | --- |
| `Mask` | the same text for all values, optionally with the value's last characters |
| `Tokenize` | a token: equal for equal values, and not reversible without the key |
| `Drop` | null |

Null stays null. The values of headers are protected; their names are not.
"""

import hashlib
import hmac
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from tidemark.base.arguments import checked_class
from tidemark.base.counts import format_count
from tidemark.base.errors import DefinitionError
from tidemark.base.secret import Secret, secret

MASKED = "***"
KEY = secret("env:TIDEMARK_TOKENIZATION_KEY")
"""The default reference to the key of tokens."""

_MIN_KEY_CHARACTERS = 32
"""The shortest allowed key, in characters. Someone who knows some values and their tokens must not
be able to guess the key.
"""

HEADERS = "ARRAY<STRUCT<KEY:STRING,VALUE:BINARY>>"
_DIGITS = 32

Change = Callable[[bytes], bytes | None]
"""A function that takes a value and returns its protected value, or None to make it null. Texts are
passed as UTF-8.
"""


class Protection(ABC):
    """The base class of protections, which replace values of a column before they are stored."""

    kinds: ClassVar[tuple[str, ...]] = ()
    """The accepted column types, in capitals without spaces. An empty tuple stands for any type."""

    @property
    @abstractmethod
    def stored_descriptor(self) -> str:
        """A text that identifies how values are protected, such as `mask 4`.

        The event log stores the text as a table property. Two protections that protect values
        differently have different texts.

        Raises:
            DefinitionError: the key does not exist, or is too short.
        """

    @abstractmethod
    def create_change(self) -> Change:
        """Return the function that protects a value.

        Raises:
            DefinitionError: the key does not exist, or is too short.
        """

    def protect_values(self, values: "pa.Array[Any] | pa.ChunkedArray[Any]") -> "pa.Array[Any]":
        """Return the protected values of a column of strings or bytes; null stays null."""
        combined = values
        if isinstance(values, pa.ChunkedArray):
            combined = values.combine_chunks()
        change = self.create_change()
        # Change each distinct value only once.
        coded = combined.cast(pa.binary()).dictionary_encode()
        changed = pa.array([change(value) for value in coded.dictionary.to_pylist()], pa.binary())
        return changed.take(coded.indices).cast(combined.type)


@checked_class
@dataclass(frozen=True)
class Mask(Protection):
    """The text `***` in place of each value of a STRING column.

    Example:
        Mask(keep_last=4)  # 4000123456789012 becomes ***9012

    Args:
        keep_last: the number of last characters to keep after the asterisks. None are kept if the
            value is shorter than twice this number, because they would be most of the value.

    Raises:
        DefinitionError: `keep_last` is negative.
    """

    keep_last: int = 0
    kinds: ClassVar[tuple[str, ...]] = ("STRING",)

    def __post_init__(self) -> None:
        if self.keep_last < 0:
            raise DefinitionError(f"Mask: `keep_last` must be 0 or more (got {self.keep_last}).")

    @property
    def stored_descriptor(self) -> str:
        return f"mask {self.keep_last}"

    def create_change(self) -> Change:
        keep = self.keep_last

        def mask_value(value: bytes) -> bytes:
            text = value.decode(errors="replace")
            if keep == 0 or len(text) < 2 * keep:
                return MASKED.encode()
            return f"{MASKED}{text[-keep:]}".encode()

        return mask_value


@checked_class
@dataclass(frozen=True)
class Tokenize(Protection):
    """A token in place of each value: 32 hexadecimal digits of its HMAC-SHA256 under a key.

    It accepts STRING and BINARY columns, and Kafka headers. The key is read when a source is
    ingested; the ingest refuses a key that is too short.

    Example:
        Tokenize(key=secret("file:/etc/tidemark/tokens"))

    Args:
        key: the reference to the key, which has 32 characters or more (`openssl rand -hex 32`
            creates one). Columns with the same key have the same token for the same value, so that
            you can join the columns by their tokens.
    """

    key: Secret = KEY
    kinds: ClassVar[tuple[str, ...]] = ("STRING", "BINARY", HEADERS)

    @property
    def stored_descriptor(self) -> str:
        # An HMAC of a fixed text identifies the key without revealing it.
        name = hmac.digest(self._read_key(), b"name of the key", hashlib.sha256)
        return f"tokenize by key {name.hex()[:8]}"

    def create_change(self) -> Change:
        key = self._read_key()
        return lambda value: hmac.digest(key, value, hashlib.sha256).hex()[:_DIGITS].encode()

    def _read_key(self) -> bytes:
        key = self.key.reveal().encode()
        if len(key) < _MIN_KEY_CHARACTERS:
            raise DefinitionError(
                f"The tokenization key {self.key.reference} has "
                f"{format_count(len(key), 'character')}, but "
                f"needs at least {_MIN_KEY_CHARACTERS}, so that it can't be guessed. Create one "
                "with `openssl rand -hex 32`."
            )
        return key


@checked_class
@dataclass(frozen=True)
class Drop(Protection):
    """Null in place of each value, for a column of any type.

    Example:
        Drop()
    """

    @property
    def stored_descriptor(self) -> str:
        return "drop"

    def create_change(self) -> Change:
        return lambda _: None
