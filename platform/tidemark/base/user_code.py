"""Describe exceptions in the user's code in one line, with the file and the line number."""

import re
import sysconfig
from pathlib import Path
from traceback import extract_tb, format_exception_only

from tidemark.base.sent_code import PATH

_TIDEMARK = Path(__file__).parents[3]
_LIBRARIES = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
_PACKAGES = [
    str(_TIDEMARK / name) for name in ("platform/tidemark", "streaming/tidemark_streaming")
]
_FRAME = re.compile(r'\s+File "(?P<file>[^"]+)", line (?P<line>\d+)')
_NOT_THEIRS = ("<", *_LIBRARIES, *_PACKAGES)
_NOT_THEIRS_IF_SENT = ("tidemark/", "tidemark_streaming/")


def find_place(error: BaseException) -> str | None:
    """Return the file and line of the user's code that raised an exception, or None.

    If a library raised the exception, this is the line of the user's code that called the library.
    Return None if no user's code is on the stack.
    """
    if isinstance(error, SyntaxError) and error.filename is not None:
        return _describe_position(error.filename, error.lineno)
    for frame in reversed(extract_tb(error.__traceback__)):
        if _is_theirs(frame.filename):
            return _describe_position(frame.filename, frame.lineno)
    return None


def describe_exception(error: BaseException) -> str:
    """Return the type and message of an exception in one line, without a final period."""
    if isinstance(error, SyntaxError):
        text = f": {error.text.strip()}" if error.text else ""
        return f"{type(error).__name__}: {error.msg}{text}"
    lines = "".join(format_exception_only(error)).strip().splitlines()
    text = " ".join(line.strip() for line in lines).rstrip(".")
    if getattr(error, "getCondition", str)() != "SESSION_OR_CONTEXT_NOT_EXISTS":
        return text
    return (
        f"{text}. Definitions are loaded without an engine: use a function of tidemark.agg "
        "for an aggregate, and create columns and UDFs of Spark within the function of an asset"
    )


def _is_theirs(file: str) -> bool:
    """Return whether a file of a traceback is the user's."""
    sent = PATH.match(file)
    if sent is None:
        return not file.startswith(_NOT_THEIRS)
    return not file[sent.end() :].startswith(_NOT_THEIRS_IF_SENT)


def _describe_position(file: str, line: int | None) -> str:
    path = Path(PATH.sub("", file, count=1))
    working_directory = Path.cwd()
    shown = path.relative_to(working_directory) if path.is_relative_to(working_directory) else path
    if line is not None:
        return f"{shown}, line {line}"
    return str(shown)


def find_in_text(text: str) -> str | None:
    """Return the place in the user's code, and then the exception, from a traceback in a text.

    For example: `at shop/transforms.py, line 12: KeyError: 'x'`. The engine's Python workers report
    their exceptions as text. Return None if the text has no traceback.
    """
    _, marker, trace = text.rpartition("Traceback (most recent call last):\n")
    if not marker:
        return None
    where: str | None = None
    for line in trace.splitlines():
        if (frame := _FRAME.match(line)) is not None:
            if _is_theirs(frame["file"]):
                where = _describe_position(frame["file"], int(frame["line"]))
        elif line.strip() and not line.startswith(" "):
            return f"{f'at {where}' if where else 'in a library'}: {line.strip().rstrip('.')}"
    return None
