"""Compare the header of a CSV file with the columns of its source, and explain a difference."""

from collections.abc import Sequence

from tidemark.base.counts import format_count
from tidemark.define.source import Source
from tidemark_streaming.payloads.csv_records import SEPARATOR_LINE, SEPARATORS, Csv
from tidemark_streaming.payloads.payload import UndecodableError

_SHOWN_CHARACTERS = 200


class WrongHeaderError(Exception):
    """A header does not name the columns of its source. The message has the reason."""


def columns_of_header(header: bytes, source: Source, form: Csv) -> dict[str, str]:
    """Return the source's columns that a CSV file has according to its header, with their types.

    The last columns may be missing, because a file may be older than these columns of the source.

    Raises:
        WrongHeaderError: the header does not name the source's columns in order, or lacks the event
            time.
    """
    if b"\0" in header:
        raise WrongHeaderError("it seems to be UTF-16 without a byte order mark: write it as UTF-8")
    try:
        names = [(name or "").strip() for name in form.split_fields(header)]
    except UndecodableError as error:
        raise WrongHeaderError(
            f"its header can't be read: {str(error).removesuffix('.')}"
        ) from None
    columns = dict(list(source.record_columns.items())[: len(names)])
    expected = [source.field_of(column).lower() for column in columns]
    lacks_event_time = source.event_time not in columns.keys() | source.computed.keys()
    if [name.lower() for name in names] != expected or lacks_event_time:
        raise WrongHeaderError(_explain_difference(names, source, form))
    return columns


def _explain_difference(names: Sequence[str], source: Source, form: Csv) -> str:
    """Return how the names in a header differ from the fields of the source."""
    fields = list(source.record_fields)
    present = {name.lower() for name in names}
    declared = {field.lower() for field in fields}
    requirement = f"its header must name the columns {', '.join(fields)}"
    if names[0].lower().startswith(SEPARATOR_LINE):
        return (
            f"{requirement}, but its first line is {names[0][: len(SEPARATOR_LINE) + 1]!r}: set "
            "the "
            "option sep to this separator"
        )
    other = _separator_of(names, form)
    if other is not None:
        return (
            f"{requirement}, separated by {form.separator!r}, but it is separated by {other!r}: "
            f"set the option sep to {other!r}"
        )
    faults = list[str]()
    if missing := [field for field in fields if field.lower() not in present]:
        faults.append(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    if not all(names):
        faults.append("a column has no name, perhaps because each line ends with a separator")
    if unknown := [name for name in names if name and name.lower() not in declared]:
        faults.append(_describe_unknown(unknown, source))
    if len(present) < len(names):
        faults.append("it has a column twice")
    if not faults:
        faults.append("they are in another order")
    return f"{requirement}, but {' and '.join(faults)} (found {_show_fields(names, source)})"


def _separator_of(names: Sequence[str], form: Csv) -> str | None:
    """Return the separator that a header uses, if it is another one than the format's."""
    if len(names) > 1:
        return None
    return next((sep for sep in SEPARATORS if sep != form.separator and sep in names[0]), None)


def _describe_unknown(names: Sequence[str], source: Source) -> str:
    count = format_count(len(names), "column")
    verb = "is" if len(names) == 1 else "are"
    if source.mask:
        return f"{count} {verb} not declared"
    return f"{_shorten_names(names)} {verb} not declared"


def _show_fields(names: Sequence[str], source: Source) -> str:
    # If the header is missing, the names are values of the first row, which may need protection.
    if source.mask:
        declared = {field.lower() for field in source.record_fields}
        names = [name if name.lower() in declared else "…" for name in names]
    return _shorten_names(names)


def _shorten_names(names: Sequence[str]) -> str:
    text = " ".join(", ".join(names).split())
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    return f"{text[:_SHOWN_CHARACTERS]}…"
