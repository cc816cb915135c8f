"""A text in SQL, as tokens that know their positions, so that error messages can name them.

The tokens are those of sqlglot, in Spark's dialect.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from sqlglot import Dialect, Token, TokenType
from sqlglot.errors import TokenError

from tidemark.base.errors import DefinitionError

SPARK = Dialect.get_or_raise("spark")

_WHOLE_PARTS = re.compile(
    r"""--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`|[^'"`/]|/(?!\*)""",
    re.DOTALL,
)
"""Comments, texts and quoted names that end, and single characters."""

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
_WORD = re.compile(r"[^\W\d]\w*")


class SqlError(DefinitionError):
    """A mistake in a definition in SQL. The message begins with its line and column."""


@dataclass(frozen=True)
class SqlText:
    """The SQL of a definition, and its place for error messages.

    Args:
        locate: takes a line and a column, both from 1, and returns the place for error messages.
        qualifier: the name of the table, in lower case. In front of a column, as in `orders.city`,
            it is left out. None if it is kept.
    """

    text: str
    locate: Callable[[int, int], str]
    qualifier: str | None = None

    def error(self, offset: int, message: str) -> SqlError:
        """Return an error whose message begins with the place of an offset in the text."""
        before = self.text[:offset]
        line = before.count("\n") + 1
        column = offset - (before.rfind("\n") + 1) + 1
        return SqlError(f"{self.locate(line, column)}: {message}")

    @cached_property
    def phrase(self) -> "Phrase":
        """The whole text."""
        try:
            tokens = SPARK.tokenize(self.text)
        except TokenError:
            raise self._open_token_error() from None
        kept = list[Token]()
        position = 0
        while position < len(tokens):
            if self._is_qualifier(tokens, position):
                position += len(("orders", "."))
            kept.append(tokens[position])
            position += 1
        return Phrase(self, kept, kept[-1].end + 1 if kept else 0)

    def _is_qualifier(self, tokens: Sequence[Token], position: int) -> bool:
        """Return whether a token is the name of the table in front of a column."""
        after = tokens[position + 1 : position + 3]
        if [token.token_type for token in after[:1]] != [TokenType.DOT] or len(after) == 1:
            return False
        if position > 0 and tokens[position - 1].token_type is TokenType.DOT:
            return False
        token = tokens[position]
        is_text = token.token_type is TokenType.STRING
        return not is_text and token.text.lower() == self.qualifier

    def begin_of(self, start: int) -> int:
        """Return the offset of the table's name in front of a column; without one, of the column.

        Args:
            start: the offset of the column.
        """
        if self.qualifier is None:
            return start
        name = re.escape(self.qualifier)
        before = re.search(rf"`?\b{name}\b`?\s*\.\s*$", self.text[:start], re.IGNORECASE)
        return start if before is None else before.start()

    def _open_token_error(self) -> SqlError:
        """Return the error of a text, a quoted name or a comment that does not end."""
        offset = 0
        while part := _WHOLE_PARTS.match(self.text, offset):
            offset = part.end()
        if offset == len(self.text):
            return self.error(0, "this is not SQL: remove what is not part of a SELECT.")
        opening = self.text[offset]
        opening = "/*" if opening == "/" else opening
        return self.error(offset, f"{opening} has no end: close it.")


@dataclass(frozen=True)
class Phrase:
    """Consecutive tokens of a text.

    Args:
        end: the offset behind the last token, or where a token is missing.
    """

    sql: SqlText
    tokens: Sequence[Token]
    end: int

    @property
    def start(self) -> int:
        """The offset of the first token."""
        if self.tokens:
            return self.tokens[0].start
        return self.end

    def error(self, message: str) -> SqlError:
        """Return an error whose message begins with the place of this phrase."""
        return self.sql.error(self.start, message)

    @contextmanager
    def locate_errors(self) -> Iterator[None]:
        """Raise each DefinitionError of the `with` block as a SqlError at this phrase."""
        try:
            yield
        except SqlError:
            raise
        except DefinitionError as error:
            raise self.error(str(error)) from None

    def __str__(self) -> str:
        if not self.tokens:
            return "nothing"
        return f"'{self.write()}'"

    def write(self, replacements: "dict[int, str] | None" = None) -> str:
        """Return the phrase in one line, without comments and with single spaces.

        Args:
            replacements: texts to write in place of tokens, by the offset of the token.
        """
        replacements = replacements or {}
        written = ""
        previous_end = self.start
        for start, end in _list_spans(self.tokens):
            token = replacements.get(start, self.sql.text[start:end])
            is_apart = (
                self.sql.begin_of(start) > previous_end
                and written[-1:] not in "(["
                and token not in ")],"
            )
            written += f" {token}" if is_apart else token
            previous_end = end
        return written

    @property
    def name(self) -> str | None:
        """The name that the phrase consists of, without its quotes; None if it is not a name.

        A name without quotes is in lower case, because SQL ignores its case.
        """
        if len(self.tokens) != 1:
            return None
        (token,) = self.tokens
        if token.token_type is TokenType.IDENTIFIER:
            return token.text
        if token.token_type is not TokenType.STRING and _WORD.fullmatch(token.text):
            return token.text.lower()
        return None

    def split(self) -> list["Phrase"]:
        """Return the parts between commas, without commas in parentheses."""
        cursor = Cursor(self)
        parts = [cursor.take_until(TokenType.COMMA)]
        while cursor.skip(TokenType.COMMA):
            parts.append(cursor.take_until(TokenType.COMMA))
        return parts

    def contains(self, *kinds: TokenType) -> Token | None:
        """Return the first token of some kinds, or None."""
        return next((token for token in self.tokens if token.token_type in kinds), None)


class Cursor:
    """A position in a phrase, which moves from token to token."""

    def __init__(self, phrase: Phrase) -> None:
        self._phrase = phrase
        self._position = 0

    @property
    def rest(self) -> Phrase:
        """The tokens that are not taken yet."""
        return self._between(self._position, len(self._phrase.tokens))

    @property
    def token(self) -> Token | None:
        """The next token, or None at the end."""
        if self._position == len(self._phrase.tokens):
            return None
        return self._phrase.tokens[self._position]

    def is_at(self, *kinds: TokenType) -> bool:
        """Return whether the next token is of one of some kinds."""
        return self.token is not None and self.token.token_type in kinds

    def is_at_word(self, *words: str) -> bool:
        """Return whether the next token is one of some words in upper case, without quotes."""
        if self.token is None or self.is_at(TokenType.STRING, TokenType.IDENTIFIER):
            return False
        return self.token.text.upper() in words

    def skip(self, *kinds: TokenType) -> bool:
        """Move beyond the next token if it is of one of some kinds, and return whether it is."""
        if self.is_at(*kinds):
            self._position += 1
            return True
        return False

    def skip_word(self, *words: str) -> bool:
        """Move beyond the next token if it is one of some words, and return whether it is."""
        if self.is_at_word(*words):
            self._position += 1
            return True
        return False

    def take(self) -> Phrase:
        """Return the next token, and move beyond it. The result is empty at the end."""
        begin = self._position
        self._position = min(begin + 1, len(self._phrase.tokens))
        return self._between(begin, self._position)

    def take_until(self, *kinds: TokenType) -> Phrase:
        """Return the tokens before the next one of some kinds that is not in parentheses."""
        begin = self._position
        while self.token is not None and not self.is_at(*kinds):
            if self.is_at(*_OPENING):
                self.take_group()
            elif self.is_at(*_CLOSING):
                raise self.rest.error(f"'{self.token.text}' closes nothing: remove it.")
            else:
                self._position += 1
        return self._between(begin, self._position)

    def take_group(self) -> Phrase:
        """Return the tokens in the parentheses that begin with the next token."""
        opening = self.take()
        begin = self._position
        closing = _CLOSING[_OPENING.index(opening.tokens[0].token_type)]
        self.take_until(closing)
        inner = self._between(begin, self._position)
        if not self.skip(closing):
            raise opening.error(f"'{opening.tokens[0].text}' is not closed: add its end.")
        return inner

    def _between(self, begin: int, end: int) -> Phrase:
        tokens = self._phrase.tokens[begin:end]
        if tokens:
            return Phrase(self._phrase.sql, tokens, tokens[-1].end + 1)
        behind = self._phrase.tokens[begin:]
        return Phrase(self._phrase.sql, (), behind[0].start if behind else self._phrase.end)


def list_choices(names: Iterable[str]) -> str:
    """Return a text with the allowed names."""
    return f"allowed: {', '.join(names)}"


def _list_spans(tokens: Sequence[Token]) -> list[tuple[int, int]]:
    """Return the spans of tokens in the text. Some literals are several tokens with one span."""
    spans = {token.start: token.end + 1 for token in tokens}
    return list(spans.items())
