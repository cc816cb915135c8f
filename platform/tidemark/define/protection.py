"""Protection: what becomes of a column's values before anything of them is written.

| | a value becomes |
| --- | --- |
| `Mask` | the same text for all, perhaps with its last characters |
| `Tokenise` | a token: equal values have equal ones, which tell nothing without the key |
| `Drop` | null |

Null stays null. The values of headers are protected, and their names are not.
"""

import hashlib
import hmac
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from tidemark.base.arguments import checked_class
from tidemark.base.errors import DefinitionError
from tidemark.base.secret import Secret, secret

MASKED = "***"
KEY = secret("env:TIDEMARK_TOKENISATION_KEY")
"""Where the key of tokens is, unless a column says otherwise."""

SHORTEST = 32
"""Characters that a key has at least: who knows some values must not be able to guess it."""

HEADERS = "ARRAY<STRUCT<KEY:STRING,VALUE:BINARY>>"
_DIGITS = 32

Change = Callable[[bytes], bytes | None]
"""What gives a value's protected one, of a text by its UTF-8."""


class Protection(ABC):
    """A way to protect a column."""

    kinds: ClassVar[tuple[str, ...]] = ()
    """The types of columns that it takes, in capitals, without spaces; any, where there is none."""

    @property
    @abstractmethod
    def told(self) -> str:
        """What it does, for the log's properties: not the same for what gives other values.

        Raises:
            DefinitionError: its key is not there.
        """

    @abstractmethod
    def change(self) -> Change:
        """What gives a value's protected one.

        Raises:
            DefinitionError: its key is not there.
        """


@checked_class
@dataclass(frozen=True)
class Mask(Protection):
    """The text `***` instead of each value, of a STRING.

    Example:
        Mask(keep_last=4)  # 4000123456789012 becomes ***9012

    Args:
        keep_last: how many of a value's last characters stay behind it; none of a value that is
            not at least twice as long, as it would be told for the most part.

    Raises:
        DefinitionError: fewer than 0.
    """

    keep_last: int = 0
    kinds: ClassVar[tuple[str, ...]] = ("STRING",)

    def __post_init__(self) -> None:
        if self.keep_last < 0:
            raise DefinitionError(f"A mask keeps 0 or more characters, not {self.keep_last}.")

    @property
    def told(self) -> str:
        return f"mask {self.keep_last}"

    def change(self) -> Change:
        keep = self.keep_last

        def mask(value: bytes) -> bytes:
            text = value.decode(errors="replace")
            kept = text[-keep:] if keep and len(text) >= 2 * keep else ""
            return f"{MASKED}{kept}".encode()

        return mask


@checked_class
@dataclass(frozen=True)
class Tokenise(Protection):
    """A token instead of each value: 32 hexadecimal digits of its HMAC-SHA256 by a key.

    It takes columns of STRING and BINARY, and headers of Kafka. The key is read where a source is
    ingested, which refuses one that is shorter.

    Example:
        Tokenise(key=secret("file:/etc/tidemark/tokens"))

    Args:
        key: where the key is; 32 characters or more, such as `openssl rand -hex 32` makes. Columns
            of one key have the same token for the same value, and can be joined by it.
    """

    key: Secret = KEY
    kinds: ClassVar[tuple[str, ...]] = ("STRING", "BINARY", HEADERS)

    @property
    def told(self) -> str:
        # What a key makes of a text tells which it is, and not the key.
        name = hmac.digest(self._key(), b"name of the key", hashlib.sha256)
        return f"tokenise by key {name.hex()[:8]}"

    def change(self) -> Change:
        key = self._key()
        return lambda value: hmac.digest(key, value, hashlib.sha256).hex()[:_DIGITS].encode()

    def _key(self) -> bytes:
        found = self.key.reveal().encode()
        if len(found) < SHORTEST:
            raise DefinitionError(
                f"The key of tokens, {self.key.reference}, has {len(found)} characters: one of "
                f"fewer than {SHORTEST} could be guessed; `openssl rand -hex 32` makes one."
            )
        return found


@checked_class
@dataclass(frozen=True)
class Drop(Protection):
    """Null instead of each value, of a column of any type.

    Example:
        Drop()
    """

    @property
    def told(self) -> str:
        return "drop"

    def change(self) -> Change:
        return lambda _: None
