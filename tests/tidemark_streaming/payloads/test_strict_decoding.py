"""A decoded value equals the written one exactly, or the record is a dead letter. Random values and
difficult texts in JSON and CSV are compared to the rules stated here."""

import json
import math
import re
import struct
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidemark.base.errors import DefinitionError
from tidemark.base.instants import BEGINNING, INFINITY
from tidemark_streaming.payloads import Json
from tidemark_streaming.payloads.csv_records import LONGEST, Csv
from tidemark_streaming.payloads.text_values import TimeFormats

REFUSED = object()
"""Stands for the value of a dead letter."""

INTEGERS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
DECIMALS = {
    "DECIMAL(10,2)": (10, 2),
    "DECIMAL(38,0)": (38, 0),
    "DECIMAL(38,38)": (38, 38),
    "DECIMAL(20,19)": (20, 19),
}
SCALARS = ("STRING", "BOOLEAN", "FLOAT", "DOUBLE", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ")
KINDS = (*INTEGERS, *DECIMALS, *SCALARS)
DIGITS = "[0-9]"
UTC = {"timeZone": "UTC"}


# The rules.


def of_text(text: str, kind: str) -> Any:  # noqa: ANN401 (any value)
    """Return the value of a text, as in a CSV field."""
    if kind == "STRING":
        return text
    if kind == "BOOLEAN":
        return {"true": True, "false": False}.get(text.lower(), REFUSED)
    if kind in INTEGERS:
        if not re.fullmatch(f"[+-]?{DIGITS}{{1,500}}", text):
            return REFUSED
        most = 2 ** (INTEGERS[kind] - 1)
        return int(text) if -most <= int(text) < most else REFUSED
    if kind in DECIMALS:
        return decimal(text, *DECIMALS[kind]) if is_number(text) else REFUSED
    if kind in ("FLOAT", "DOUBLE"):
        return floating(text, kind)
    if kind == "DATE":
        return day(text)
    return instant(text, zoned=kind == "TIMESTAMP")


def is_number(text: str) -> bool:
    return bool(
        re.fullmatch(rf"[+-]?({DIGITS}+\.?{DIGITS}*|\.{DIGITS}+)([eE][+-]?{DIGITS}+)?", text)
    )


def decimal(text: str, digits: int, scale: int) -> Any:  # noqa: ANN401 (as above)
    try:
        number = Decimal(text)
    except ArithmeticError:
        return REFUSED
    if not number:
        return Decimal(0)
    sign, figures, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    while figures[-1] == 0:
        figures, exponent = figures[:-1], exponent + 1
    if exponent < -scale or len(figures) + exponent > digits - scale:
        return REFUSED
    return Decimal((sign, figures, exponent))


def floating(text: str, kind: str) -> Any:  # noqa: ANN401 (as above)
    if re.fullmatch("nan|[+-]?inf(inity)?", text.lower()):
        return float(text)
    if not is_number(text):
        return REFUSED
    number = float(text)
    if kind == "FLOAT":
        number = pa.scalar(text).cast(pa.float32()).as_py()
    lost = number == 0 and re.search("[1-9]", re.split("[eE]", text)[0])
    return REFUSED if math.isinf(number) or lost else number


def day(text: str) -> Any:  # noqa: ANN401 (as above)
    if not re.fullmatch(f"{DIGITS}{{4}}-{DIGITS}{{2}}-{DIGITS}{{2}}", text):
        return REFUSED
    try:
        return date(*map(int, text.split("-")))
    except ValueError:
        return REFUSED


def instant(text: str, *, zoned: bool) -> Any:  # noqa: ANN401 (as above)
    """Return a time in microseconds since 1970, in UTC if it has no offset."""
    found = day(text[:10])
    if found is REFUSED:
        return REFUSED
    micros = (found - date(1970, 1, 1)) // timedelta(microseconds=1)
    if text[10:]:
        d = DIGITS
        parts = re.fullmatch(
            rf"[T ]({d}{d}):({d}{d})(?::({d}{d})(?:\.({d}+))?)?(Z|[+-]{d}{d}(?::?{d}{d})?)?",
            text[10:],
        )
        if parts is None:
            return REFUSED
        hour, minute, second = (int(parts[n] or 0) for n in (1, 2, 3))
        fraction, offset = (parts[4] or "").rstrip("0"), parts[5]
        if hour > 23 or minute > 59 or second > 59 or len(fraction) > 6:
            return REFUSED
        if offset is not None and not zoned:
            return REFUSED
        micros += (hour * 3600 + minute * 60 + second) * 1_000_000 + int(fraction.ljust(6, "0"))
        if offset not in (None, "Z"):
            hours, minutes = int(offset[1:3]), int(offset[3:].replace(":", "") or 0)
            if hours > 17 or minutes > 59:
                return REFUSED
            away = (hours * 3600 + minutes * 60) * 1_000_000
            micros += away if offset[0] == "-" else -away
    return micros if BEGINNING <= micros <= INFINITY else REFUSED


class Number(str):
    """A JSON number as it is written."""


def of_json(value: bytes, kind: str) -> Any:  # noqa: ANN401 (as above)
    """Return the value of the member `x` of a JSON object."""

    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        members = json.loads(
            value.decode(),
            parse_float=Number,
            parse_int=Number,
            parse_constant=refuse,
            object_pairs_hook=lambda pairs: tuple(pairs),
        )
    except (ValueError, RecursionError):
        return REFUSED
    if not isinstance(members, tuple):
        return REFUSED
    found = [member for name, member in members if name == "x"]
    if len(found) > 1:
        return REFUSED
    told = found[0] if found else None
    if told is None:
        return None
    if isinstance(told, bool):
        written = "true" if told else "false"
        return {"STRING": written, "BOOLEAN": told}.get(kind, REFUSED)
    if isinstance(told, Number):
        numbers = (*INTEGERS, *DECIMALS, "FLOAT", "DOUBLE", "STRING")
        return of_text(str(told), kind) if kind in numbers else REFUSED
    if not isinstance(told, str):
        return ... if kind == "STRING" else REFUSED
    if kind in ("FLOAT", "DOUBLE"):
        return REFUSED if is_number(told) else of_text(told, kind)
    if kind in INTEGERS or kind == "BOOLEAN":
        return REFUSED
    try:
        told.encode()
    except UnicodeEncodeError:
        return REFUSED
    return of_text(told, kind)


# The inputs.

NASTY = [
    *("", " ", "0", "-0", "+1", "-1", "01", "007", "1.", ".5", "-.5", "1.005", "0.004", "2.340"),
    *("1e2", "1E+2", "1e-2", "1e400", "-1e400", "1e-400", "1e39", "1e-50", "0e999999", "-0.0"),
    *("NaN", "nan", "-nan", "Infinity", "-Infinity", "inf", "+inf", "INF", "1d", "1f", "0x1F"),
    *("1_000", "1,000", "٣", "\uff11", "½", "1e", "e1", "--1", "+-1", "1 ", " 1", "1\n", "1\x00"),
    *(str(2**n + k) for n in (7, 8, 15, 16, 31, 32, 53, 63, 64, 127) for k in (-1, 0, 1)),
    *(f"-{2**n + k}" for n in (7, 15, 31, 63) for k in (-1, 0, 1)),
    *("9" * 38, "9" * 39, "9" * 5000, "0" * 400 + "7", "0." + "0" * 400 + "1", "2.34" + "0" * 60),
    *(
        "1e999999999999999999999999",
        "1e-999999999999999999999999",
        "1e38",
        "1e37",
        "1e-38",
        "1e-39",
    ),
    *("true", "TRUE", "True", "false", "t", "yes", "null", "NULL", "None"),
    *("2026-01-01", "2026-1-1", "2026-02-29", "2024-02-29", "0000-01-01", "0001-01-01"),
    *("9999-12-31", "10000-01-01", "-2026-01-01", "+2026-01-01", "2026-001", "20260101", "2026"),
    *("10:15:30", "T10:15:30Z", "2026-01-01T", "2026-01-01T00", "2026-01-01T00Z"),
    *("2026-01-01T00:00Z", "2026-01-01 00:00", "2026-01-01T00:00:00", "2026-01-01t00:00:00z"),
    *("2026-01-01T24:00:00Z", "2026-01-01T23:59:60Z", "2026-01-01T00:60:00Z"),
    *("2026-01-01T00:00:00.Z", "2026-01-01T00:00:00,5Z", "2026-01-01T00:00:00.123456Z"),
    *("2026-01-01T00:00:00.1234567Z", "2026-01-01T00:00:00.123456000+02:00"),
    *("2026-01-01T00:00:00.123456789", "2026-01-01T00:00:00.000000000000000000000Z"),
    *("2026-01-01T00:00:00+0530", "2026-01-01T00:00:00+05", "2026-01-01T00:00:00+5:30"),
    *("2026-01-01T00:00:00-00:00", "2026-01-01T00:00:00+18:00", "2026-01-01T00:00:00+17:59"),
    *("2026-01-01T00:00:00 Z", "2026-01-01T00:00:00 UTC", "2026-01-01T00:00:00[UTC]"),
    *("2026-01-01T00:00:00 Europe/Paris", "2026-01-01 00:00:00 AM", "2026/01/01 00:00:00"),
    *("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59.999999Z"),
    *("9999-12-31T23:59:59-00:01", "1767225603123456", "1767234917123456789", "now", "today"),
    *(
        "\ufeff2026-01-01",
        "2026-01-01\u200b",
        "\uff12\uff10\uff12\uff16-01-01",
        "\ufeff1",
        "\u00a01",
        "a\u2028b",
    ),
    *("é", "😀", "\x00", "\x1f", "\x7f", '"', '""', "\\", ",", ";", "\t", "a,b", "{}", "[1]"),
]


def shown(value: date | datetime, zone: str) -> str:
    text = value.isoformat()
    return text + zone if isinstance(value, datetime) else text


numbers = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.integers(-200, 200).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(
        allow_nan=False, allow_infinity=False, places=2, min_value=-(10**9), max_value=10**9
    ).map(str),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
)
times = st.builds(
    shown,
    st.one_of(st.datetimes(), st.dates()),
    st.sampled_from(["", "Z", "+00:00", "-08:00", "+0530", "+14", "-17:59", "-23:59"]),
)
texts = st.one_of(
    st.sampled_from(NASTY),
    numbers,
    times,
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.text("0123456789+-.eETZ: ", max_size=24),
)


def token(text: str) -> str:
    """Return a text as a JSON string, with escapes for some texts."""
    return json.dumps(text, ensure_ascii=len(text) % 2 == 0)


TOKENS = [
    *("null", "true", "false", "NaN", "-Infinity", "Infinity", "01", "+1", "1.", ".5", "-", "0x1"),
    *('"\\ud800"', '"\\udc00"', '"\\ud83d\\ude00"', '"\\u0000"', '"\\u001f"', '"\x1f"', '"\t"'),
    *(
        '"\\x"',
        '"\\"',
        "'a'",
        "a",
        "[1, 2]",
        "{}",
        '{"x": 1}',
        '[{"x":[]}]',
        "[1,]",
        "[1 2]",
        "tru",
    ),
    *('1, "x": 2', '1, "y": NaN', '1, "y": "\\ud800"', '1, "y": {"x": 1, "x": 2}', '1, "y": 01'),
    *('1} {"x": 2', '1}{"x": 2', "1}}", "1} x", '1, "\\u0078": 2', "1,", "1 2", "/**/1", '"a" "b"'),
    *("1" * 5000, "1." + "0" * 3000 + "1", "-" + "1" * 400, '"' + "a" * 70_000 + '"'),
]
tokens = st.one_of(st.sampled_from(TOKENS), texts.map(token), numbers, st.sampled_from(NASTY))
records = st.one_of(
    tokens.map(lambda t: f'{{"x":{t}}}'.encode("utf-8", "surrogatepass")),
    tokens.map(lambda t: f' {{ "y" : 1 ,\n"x" :\t{t} }}\r\n'.encode("utf-8", "surrogatepass")),
    st.sampled_from(
        [
            *(b"", b" ", b"{", b"}", b"{}", b"[]", b"null", b"1", b'"x"', b'{"x"}', b'{"x":}'),
            *(b'\xef\xbb\xbf{"x":1}', b'{"x":1}\x00', b'{"x":"\xe9"}', b'{"\xff":1}', b'{"":1}'),
            *(b'{"x":1}{}', b'{}{"x":1}', b'[{"x":1}]', b"{x:1}", b'{"X":1}', b'{"x" 1}'),
            *(b'{"x":"\xed\xa0\x80"}', '{"x":1}'.encode("utf-16"), b'\xff\xfe{"x":1}'),
        ]
    ),
    st.binary(max_size=12),
)


def same(found: Any, wanted: Any) -> bool:  # noqa: ANN401 (as above)
    """Return whether two values are equal to the bit."""
    if isinstance(wanted, float) and isinstance(found, float):
        return (math.isnan(found) and math.isnan(wanted)) or struct.pack("d", found) == struct.pack(
            "d", wanted
        )
    return type(found) is type(wanted) and found == wanted


def read(events: Any, name: str, kind: str) -> list[Any]:  # noqa: ANN401 (decoded events)
    column = events.columns[name]
    column.validate(full=True)
    if kind.startswith("TIMESTAMP"):
        column = column.cast(pa.int64())
    values = column.to_pylist()
    assert all(values[n] is None for n in events.reasons)
    return [REFUSED if n in events.reasons else value for n, value in enumerate(values)]


def binary(values: Sequence[bytes]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, pa.binary())])


@settings(max_examples=100, deadline=None)
@given(st.lists(records, min_size=1, max_size=40), st.sampled_from(KINDS), st.sampled_from([1, 5]))
@example([f'{{"x":{token(text)}}}'.encode() for text in NASTY], "TIMESTAMP", 1)
@example([b'{"x":"1180591620717411303423"}'], "DECIMAL(38,38)", 1)
@example([b'{"x":1180591620717411303423}'], "DECIMAL(38,38)", 1)
@example([b'{"x":11805916207174113034.23e2}'], "DECIMAL(38,38)", 1)
def test_json_values_are_exact_or_dead_letters(
    values: list[bytes], kind: str, times_over: int
) -> None:
    """This also holds in a large batch, which Arrow reads at once."""
    values = values * times_over
    found = read(Json(UTC).decode_values(binary(values), {"x": kind}), "x", kind)
    for value, mine in zip(values, found, strict=True):
        wanted = of_json(value, kind)
        if wanted is ...:
            # The text of an array or object as it is written.
            assert isinstance(mine, str)
            assert mine in value.decode()
            assert json.loads(mine) == json.loads(value)["x"]
        else:
            assert same(mine, wanted), (value, mine, wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_difficult_texts_in_json_are_exact_or_dead_letters(kind: str) -> None:
    tokens = [*TOKENS, *NASTY, *map(token, NASTY)]
    values = [f'{{"x":{t}}}'.encode("utf-8", "surrogatepass") for t in tokens]
    found = read(Json(UTC).decode_values(binary(values), {"x": kind}), "x", kind)
    for value, mine in zip(values, found, strict=True):
        wanted = of_json(value, kind)
        assert wanted is ... or same(mine, wanted), (value, mine, wanted)


def test_both_json_readers_accept_the_same_depths_digits_and_names() -> None:
    """Decodes each value alone and within a large batch of regular records."""

    def deep(levels: int) -> bytes:
        return b'{"x":7,"y":' + b"[" * levels + b"]" * levels + b"}"

    wide = b'{"x":7,"y":[' + b",".join([b"[1]"] * 300) + b"]}"
    odd = {
        deep(99): 7,
        deep(100): REFUSED,
        deep(5000): REFUSED,
        deep(200_000): REFUSED,
        wide: 7,
        b'{"x":7,"y":"' + b"[{" * 200 + b'\\""}': 7,
        b'{"x":7,"y":' + b"1" * 3000 + b"}": 7,
        b'{"x":7,"' + b"n" * 60_000 + b'":1}': 7,
    }
    alone = [read(Json().decode_values(binary([v]), {"x": "INT"}), "x", "INT")[0] for v in odd]
    assert alone == list(odd.values())
    many = [v for value in odd for v in [*[b'{"x":7}'] * 100, value]]
    found = read(Json().decode_values(binary(many), {"x": "INT"}), "x", "INT")
    assert found[100::101] == alone
    del found[100::101]
    assert set(found) == {7}


@settings(max_examples=100, deadline=None)
@given(st.lists(texts, min_size=1, max_size=40), st.sampled_from(KINDS), st.sampled_from([1, 5]))
def test_csv_values_are_exact_or_dead_letters(
    fields: list[str], kind: str, times_over: int
) -> None:
    quoted = [f'"{text.replace(chr(34), chr(34) * 2)}"' for text in fields]
    values = [f"{text},7".encode() for text in quoted] * times_over
    found = read(Csv(UTC).decode_values(binary(values), {"x": kind, "n": "INT"}), "x", kind)
    for text, mine in zip(fields * times_over, found, strict=True):
        wanted = None if text == "" and kind != "STRING" else of_text(text, kind)
        assert same(mine, wanted), (text, mine, wanted)


pieces = st.one_of(st.sampled_from(["", '"', ",", "\ufeff", "\r", "\x00", " "]), texts, numbers)


@pytest.mark.parametrize("form", [Csv(), Json()], ids=["csv", "json"])
@given(st.data())
def test_a_record_is_decoded_alike_wherever_it_is(form: Csv | Json, data: st.DataObject) -> None:
    """A reader of many records at once must not treat the first of them differently."""
    kind, columns = data.draw(st.sampled_from(KINDS)), {"x": "STRING"}
    columns["y"] = kind
    drawn = data.draw(st.lists(st.lists(pieces, max_size=4).map("".join), min_size=1, max_size=4))
    values = [text.encode(errors="surrogatepass") for text in drawn]
    if isinstance(form, Json):
        values = [b'{"x": "' + value + b'", "y": ' + value + b"}" for value in values]
    ahead, behind = (
        form.decode_values(binary(values), columns),
        form.decode_values(binary(values[::-1]), columns),
    )
    for name in columns:
        found, other = read(ahead, name, columns[name]), read(behind, name, columns[name])
        assert all(map(same, found, other[::-1])), (values, found, other)


def test_a_byte_order_mark_in_a_csv_field_stays() -> None:
    """Concatenated files have it in the first field of a record."""
    values = binary([b"\xef\xbb\xbfa", b"\xef\xbb\xbfb"])
    assert read(Csv().decode_values(values, {"x": "STRING"}), "x", "STRING") == [
        "\ufeffa",
        "\ufeffb",
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_difficult_texts_in_csv_are_exact_or_dead_letters(kind: str) -> None:
    plain = [t for t in NASTY if not set(t) & set('",\r\n')]
    found = read(
        Csv(UTC).decode_values(binary([f"7,{t}".encode() for t in plain]), {"n": "INT", "x": kind}),
        "x",
        kind,
    )
    for text, mine in zip(plain, found, strict=True):
        wanted = None if text == "" else of_text(text, kind)
        assert same(mine, wanted), (text, mine, wanted)


def records_of(text: str) -> list[tuple[str, list[str | None] | None]]:
    """Parse a CSV file character by character. Return its records with their fields, or None
    instead of fields if a quote is misplaced."""
    found = list[tuple[str, list[str | None] | None]]()
    at = 0
    while at < len(text):
        end, fields = _record(text, at)
        if end is None:
            # An unclosed quote: the line is a record of its own.
            end = text.find("\n", at) % (len(text) + 1)
            fields = None
        written = text[at:end].removesuffix("\r")
        if written:
            found.append((written, fields))
        at = end + 1
    return found


def _record(text: str, at: int) -> tuple[int | None, list[str | None] | None]:
    fields, amiss = list[str | None](), False
    while True:
        if text[at : at + 1] == '"':
            value, at = "", at + 1
            while True:
                close = text.find('"', at)
                if close < 0:
                    return None, None
                value, at = value + text[at:close], close + 1
                if text[at : at + 1] != '"':
                    break
                value, at = value + '"', at + 1
            fields.append(value)
            ends = re.match(r"\r?(\n|$)", text[at:])
            if not ends and text[at : at + 1] != ",":
                # Text after the closing quote: a dead letter up to the end of the line.
                amiss = True
                at = text.find("\n", at) % (len(text) + 1)
        else:
            stop = re.compile("[,\n]").search(text, at)
            close = stop.start() if stop else len(text)
            value = text[at:close]
            if text[close : close + 1] != ",":
                value = value.removesuffix("\r")
            amiss = amiss or "\r" in value
            fields.append(value or None)
            at = close
        if text[at : at + 1] == "\r":
            at += 1
        if amiss and text[at : at + 1] == ",":
            at = text.find("\n", at) % (len(text) + 1)
        if text[at : at + 1] != ",":
            return at, None if amiss else fields
        at += 1


@settings(max_examples=150, deadline=None)
@given(st.text('a,"\n\r', max_size=40), st.integers(1, 50))
@example('a,"b\nc",d\n', 3)
@example('a,"b\n\n\n', 1)
@example('"a"b\n"c\nd"e\nf', 2)
@example('\r\n\r"\n",\r\n', 2)
@example('"",', 1)
def test_csv_records_are_complete_for_any_block_size(text: str, block: int) -> None:
    """A file may be cut into blocks of any size."""
    form, found, rest = Csv(), list[bytes](), b""
    content = text.encode()
    for begin in range(0, len(content), block):
        records, rest = form.split_records(rest + content[begin : begin + block], is_last=False)
        found += records
    found += form.split_records(rest, is_last=True)[0]
    wanted = records_of(text)
    assert [r.decode() for r in found] == [written for written, _ in wanted]
    for record, (_, fields) in zip(found, wanted, strict=True):
        count = 3 if fields is None else len(fields)
        columns = {f"c{n}": "STRING" for n in range(count)}
        events = form.decode_values(binary([record]), columns)
        assert bool(events.reasons) == (fields is None), record
        if fields is not None:
            assert [events.columns[c][0].as_py() for c in columns] == fields


def test_an_unclosed_quote_costs_one_line() -> None:
    lines = [b'1,"never ends', *[b"2,x"] * (LONGEST // 2), b'3,"a\nb"']
    found, rest = Csv().split_records(b"\n".join(lines), is_last=True)
    assert rest == b""
    assert found == lines


@pytest.mark.parametrize(
    ("pattern", "text", "wanted"),
    [
        ("dd/MM/yyyy HH:mm", "31/12/2025 23:59", "2025-12-31T23:59"),
        ("M/d/yyyy H:mm", "1/2/2026 3:04", "2026-01-02T03:04"),
        ("M/d/yyyy H:mm", "11/12/2026 13:04", "2026-11-12T13:04"),
        ("yyyyMMddHHmmss", "20260101000001", "2026-01-01T00:00:01"),
        (
            "yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
            "2026-01-01T00:00:00.123+01:00",
            "2025-12-31T23:00:00.123",
        ),
        (
            "yyyy-MM-dd HH:mm:ss.SSSSSSSSS",
            "2026-01-01 00:00:00.123456789",
            "2026-01-01T00:00:00.123456",
        ),
        ("dd.MM.yyyy", "01.02.2026", "2026-02-01"),
        ("dd.MM.yyyy", "31.02.2026", None),
        ("dd.MM.yyyy", "1.2.2026", None),
        ("dd.MM.yyyy", "2026-02-01T00:00Z", None),
        ("dd.MM.yyyy", "01.02.2026 10:00", None),
        ("dd.MM.yyyy HH:mm", "01.02.2026 25:00", None),
        ("M/d/yy h:mm a", "1/2/26 12:04 AM", "2026-01-02T00:04"),
        ("M/d/yy h:mm a", "11/12/26 12:04 pm", "2026-11-12T12:04"),
        ("M/d/yy h:mm a", "1/2/26 9:04 PM", "2026-01-02T21:04"),
        ("M/d/yy h:mm a", "1/2/26 13:04 PM", None),
        ("M/d/yy h:mm a", "1/2/26 0:04 AM", None),
        ("M/d/yy h:mm a", "1/2/2026 1:04 AM", None),
        ("yyyy-MM-dd hh a", "2026-01-02 11 PM", "2026-01-02T23:00"),
        ("d-MMM-yyyy", "2-Sep-2026", "2026-09-02"),
        ("d-MMM-yyyy", "2-Sept-2026", None),
        ("MMMM d, yyyy", "may 31, 2026", "2026-05-31"),
    ],
)
def test_a_timestamp_pattern_is_applied_exactly(
    pattern: str, text: str, wanted: str | None
) -> None:
    form = Json({"timestampFormat": pattern, **UTC})
    events = form.decode_values(binary([json.dumps({"x": text}).encode()]), {"x": "TIMESTAMP"})
    found = read(events, "x", "TIMESTAMP")
    assert found == [REFUSED if wanted is None else instant(wanted, zoned=True)]


@pytest.mark.parametrize(
    ("unit", "number", "wanted"),
    [
        ("epochSeconds", "1767225603", 1767225603_000_000),
        ("epochSeconds", "-1", -1_000_000),
        ("epochSeconds", "253402300800", REFUSED),
        ("epochMillis", "1767225603123", 1767225603_123_000),
        ("epochMillis", "1767225603123.5", 1767225603_123_500),
        ("epochMillis", "1e3", 1_000_000),
        ("epochMillis", "253402300800000", REFUSED),
        ("epochMicros", "1767225603123456", 1767225603_123_456),
        ("epochMicros", "9223372036854775807", REFUSED),
        ("epochNanos", "1767234917123456000", 1767234917_123_456),
        ("epochNanos", "-1000", -1),
        ("epochNanos", "1767234917123456789", REFUSED),
        ("epochNanos", "9223372036854775808", REFUSED),
    ],
)
def test_epoch_timestamps_are_exact_or_dead_letters(unit: str, number: str, wanted: object) -> None:
    options = {"timestampFormat": unit}
    value, regular = f'{{"x":{number}}}'.encode(), f' {{"x":{number}}}'.encode()
    events = Json(options).decode_values(binary([value, regular]), {"x": "TIMESTAMP"})
    assert read(events, "x", "TIMESTAMP") == [wanted, wanted]
    events = Csv(options).decode_values(binary([number.encode()]), {"x": "TIMESTAMP"})
    assert read(events, "x", "TIMESTAMP") == [wanted]


@pytest.mark.parametrize(
    "pattern",
    [
        *("yyy-MM-dd", "HH:mm", "yyyy-MM-dd hh:mm", "yyyy-MM-dd HH:mm a", "yyyy-MM-dd MM", "'"),
        *("yyyy-yy-MM-dd", "yyyy-MMMMM-dd", "yyyy-MM-dd HH:hh a", "EEE yyyy-MM-dd"),
    ],
)
def test_an_unsupported_timestamp_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(DefinitionError, match="is not supported: it needs yyyy or yy, MM or MMM"):
        TimeFormats(pattern)


_LETTERS = {"d": ("dd", "d"), "M": ("MM", "M", "MMM", "MMMM"), "y": ("yyyy", "yy")}
_DAYS = [
    "/".join(groups)
    for order in ("dMy", "Mdy", "yMd")
    for groups in product(*(_LETTERS[letter] for letter in order))
]
_HOURS = ("HH:mm:ss", "H:mm", "hh:mm:ss a", "h:mm a", "h:mm:ssa")


@given(
    st.sampled_from(_DAYS),
    st.sampled_from(_HOURS),
    st.datetimes(datetime.fromisoformat("2000-01-01"), datetime.fromisoformat("2099-12-31")),
)
def test_a_time_is_read_by_the_pattern_with_which_it_was_written(
    day: str, hour: str, at: datetime
) -> None:
    pattern, written = f"{day} {hour}", f"{write_time(day, at)} {write_time(hour, at)}"
    at = at.replace(microsecond=0, second=at.second if "ss" in hour else 0)
    events = Csv({"timestampFormat": pattern, "timeZone": "UTC", "sep": ";"}).decode_values(
        binary([written.encode()]), {"x": "TIMESTAMP"}
    )
    assert read(events, "x", "TIMESTAMP") == [instant(at.isoformat(), zoned=True)]


def write_time(pattern: str, at: datetime) -> str:
    """Write a time by a pattern of Spark's letters, one letter group after the other."""
    groups = {
        "yyyy": f"{at.year}",
        "yy": f"{at.year % 100:02}",
        "MMMM": f"{at:%B}",
        "MMM": f"{at:%b}",
        "MM": f"{at.month:02}",
        "M": f"{at.month}",
        "dd": f"{at.day:02}",
        "d": f"{at.day}",
        "HH": f"{at.hour:02}",
        "H": f"{at.hour}",
        "hh": f"{at:%I}",
        "h": str(int(f"{at:%I}")),
        "a": f"{at:%p}",
        "mm": f"{at.minute:02}",
        "ss": f"{at.second:02}",
    }
    return re.sub(r"([A-Za-z])\1*", lambda found: groups[found[0]], pattern)


@given(st.decimals(-(10**8), 10**8, places=3), st.sampled_from(["DOUBLE", "DECIMAL(12,3)"]))
def test_a_number_with_a_decimal_comma_is_the_number_with_a_point(
    number: Decimal, kind: str
) -> None:
    point = f"{number:f}"
    texts = [point.replace(".", ","), f"{int(number)}", point]
    form = Csv({"decimalSeparator": ",", "sep": ";"})
    events = form.decode_values(binary([text.encode() for text in texts]), {"x": kind})
    plain = Csv().decode_values(binary([point.encode(), texts[1].encode()]), {"x": kind})
    assert read(events, "x", kind) == [*read(plain, "x", kind), REFUSED]


@pytest.mark.parametrize("text", ["1.234,5", "1,234,5", ",", "1,5e", "1'5", "1,-5"])
def test_other_separators_of_numbers_are_refused(text: str) -> None:
    form = Csv({"decimalSeparator": ",", "sep": ";"})
    for kind in ("DOUBLE", "DECIMAL(12,3)"):
        assert read(form.decode_values(binary([text.encode()]), {"x": kind}), "x", kind) == [
            REFUSED
        ]


def test_unsupported_format_options_are_refused() -> None:
    with pytest.raises(DefinitionError, match=r"'decimalSeparator' must be '\.' or ','"):
        Csv({"decimalSeparator": "'"})
    with pytest.raises(DefinitionError, match="JSON has no option 'multiLine'"):
        Json({"multiLine": "true"})
    with pytest.raises(DefinitionError, match="CSV has no option 'encoding'"):
        Csv({"encoding": "latin1"})
    for sep in ("||", "\u00e9", "", "\0", '"', "\n"):
        with pytest.raises(DefinitionError, match="'sep' must be one ASCII character"):
            Csv({"sep": sep})


@pytest.mark.parametrize("rows", [1, 3])
def test_any_ascii_character_separates_fields(rows: int) -> None:
    for sep in set(map(chr, range(1, 128))) - {*'"\r\nxab'}:
        record = sep.join(["x", f'"{sep}"', '"a""b"', ""]).encode()
        form = Csv({"sep": sep})
        records, rest = form.split_records(b"\n".join([record] * rows), is_last=True)
        events = form.decode_values(binary(records), dict.fromkeys("wxyz", "STRING"))
        assert (rest, events.reasons) == (b"", {})
        wanted = ["x", sep, 'a"b', None]
        assert [column.to_pylist() for column in events.columns.values()] == [
            [value] * rows for value in wanted
        ]


def test_timestamps_without_an_offset_use_the_declared_time_zone() -> None:
    times = ["2026-07-01 12:00", "2026-07-01T12:00Z", "2026-01-01"]
    lines = binary([json.dumps({"x": text}).encode() for text in times])
    events = Json({"timeZone": "Europe/Berlin"}).decode_values(lines, {"x": "TIMESTAMP"})
    wanted = ["2026-07-01T10:00", "2026-07-01T12:00", "2025-12-31T23:00"]
    assert read(events, "x", "TIMESTAMP") == [instant(text, zoned=True) for text in wanted]
    with pytest.raises(DefinitionError, match="has an unknown time zone, 'Berlin'"):
        Csv({"timeZone": "Berlin"})
