"""`tidemark dead-letters`: inspect and replay records that could not be decoded.

Inspection does not need the engine; replaying does.
"""

import subprocess
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from tidemark.base.counts import format_count
from tidemark.base.errors import DataError, DefinitionError
from tidemark_streaming.cli.console import message_console, print_facts, print_table, report_step
from tidemark_streaming.cli.context import Home, SourceName
from tidemark_streaming.cli.output import Output, with_json

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemark.define.source import Source

_Letters = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[LETTER]...", help="Dead letters as ARRIVAL:POSITION, for example 3:17."
    ),
]
_Reason = Annotated[
    str | None,
    typer.Option(
        "--reason", metavar="TEXT", help="Only dead letters with this text in their reason."
    ),
]
_AllLetters = Annotated[
    bool, typer.Option("--all", help="All dead letters that were not replayed.")
]

_SHOWN = 10
_STILL_INVALID = 1
"""The exit code if some dead letters still can't be decoded."""

app = typer.Typer(
    no_args_is_help=True,
    help="Inspect and replay records that could not be decoded."
    "\n\nExample: `tidemark dead-letters list clicks`",
)


@app.command("list")
@with_json
def list_dead_letters(source: SourceName) -> Output:
    """Count the dead letters of a source by day, topic and reason.

    For a join, the command counts the rows of its bases that take no part in it, because they are
    too late or have no event time (table JOIN_unjoined).

    Example: `tidemark dead-letters list clicks`
    """
    base = Home().find_ingestion(source).source
    rows = _count_letters(_read_current(base, content=False))
    return Output(rows, lambda: _print_counts(base, rows))


def _print_counts(source: "Source", rows: list[dict[str, Any]]) -> None:
    if not rows:
        message_console().print(f"'{source.name}' has no {source.dead_letter_noun}s.")
        return
    total = sum(row["letters"] for row in rows)
    columns = ("day", "topic", "reason", "letters", "came back", "first")
    title = f"{source.name}: {format_count(total, source.dead_letter_noun)}"
    print_table(columns, [row.values() for row in rows], title)


@app.command("show")
@with_json
def show_dead_letters(
    source: SourceName,
    letters: _Letters = None,
    reason: _Reason = None,
    limit: Annotated[
        int, typer.Option(min=1, help="Show at most this many, the newest first.")
    ] = _SHOWN,
) -> Output:
    """Show dead letters with their origin, reason and bytes.

    Bytes that are valid UTF-8 appear as text, others in hexadecimal.

    Example: `tidemark dead-letters show clicks 3:17`
    """
    chosen = _select_letters(source, letters, reason)
    rows = [_to_plain(row) for row in chosen.slice(max(chosen.num_rows - limit, 0)).to_pylist()]

    def print_rows() -> None:
        if not rows:
            message_console().print(f"'{source}' has no such dead letters.")
        for row in rows:
            title = f"[bold]{row.pop('letter')}[/]  {escape(row.pop('reason'))}"
            print_facts({name: value for name, value in row.items() if value is not None}, title)

    return Output(rows, print_rows)


@app.command("replay")
@with_json
def replay_dead_letters(
    source: SourceName,
    letters: _Letters = None,
    reason: _Reason = None,
    all_letters: _AllLetters = False,
    file: Annotated[
        Path | None,
        typer.Option(
            "--payload-file", metavar="FILE", help="A file with the fixed bytes of the dead letter."
        ),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(
            "--payload-command",
            metavar="COMMAND",
            help="A shell command that fixes each: bytes on stdin, fixed bytes on stdout.",
        ),
    ] = None,
) -> Output:
    """Decode dead letters again and add those that now decode to the event log, as a new arrival.

    They are decoded by the current definition of the source, unchanged or fixed by --payload-file
    or --payload-command. Each dead letter is replayed once. Those that still do not decode stay,
    and the exit code is 1.

    Example: `tidemark dead-letters replay clicks 3:17 --payload-file fixed.json`
    """
    if all_letters == bool(letters or reason):
        raise DefinitionError(
            "Specify which dead letters to replay: ARRIVAL:POSITION, --reason, or --all alone."
        )
    if file is not None and command is not None:
        raise DefinitionError(
            "Use either --payload-file or --payload-command to fix dead letters, not both."
        )
    import pyarrow.dataset as ds

    from tidemark_streaming.ingest import dead_letters

    home = Home()
    ingestion = home.find_ingestion(source)
    chosen = _select_letters(source, letters, reason)
    waiting = chosen.filter(ds.field("replayed_by").is_null())
    if letters and not waiting.num_rows:
        replays = list[str]()
        for row in chosen.to_pylist():
            replays.append(f"{_name_letter(row)} by arrival {row['replayed_by']}")
        raise DataError(
            f"These dead letters of '{source}' were already ingested: {', '.join(replays)}."
        )
    fixed = _fix_content(waiting, file, command)
    store = home.open_warehouse()
    with report_step(f"replay dead letters of {source}") as work:
        result = dead_letters.reprocess_letters(
            store, ingestion.connector(home.settings.landing_of(source)), fixed
        )
        work.note = f"{result.brought:,} ingested, {len(result.refused):,} still can't be decoded"
    refused = {f"{a}:{p}": why for (a, p), why in result.refused.items()}
    arrivals = [a.arrival for a in result.arrivals]

    def print_refused() -> None:
        for letter, why in list(refused.items())[:_SHOWN]:
            message_console().print(f"{letter}: {why}", markup=False)

    return Output(
        {"source": source, "letters": result.brought, "arrivals": arrivals, "refused": refused},
        print_refused,
        typer.Exit(_STILL_INVALID) if refused else None,
    )


def _read_current(source: "Source", *, content: bool = True) -> "pa.Table":
    from tidemark.store.event_log.dead_letters import DEAD_LETTER_COLUMNS
    from tidemark_streaming.ingest import dead_letters

    columns = list(DEAD_LETTER_COLUMNS) if content else dead_letters.BRIEF
    return dead_letters.read_dead_letters(Home().open_snapshot(), source, columns)


def _select_letters(source: str, letters: list[str] | None, reason: str | None) -> "pa.Table":
    """Return the dead letters of a source.

    Args:
        letters: the IDs of the dead letters, as ARRIVAL:POSITION; None for all.
        reason: a text that the reason must contain; None for any reason.
    """
    import pyarrow as pa

    from tidemark_streaming.ingest.dead_letters import letter_keys

    candidates = _read_current(Home().find_ingestion(source).source)
    if reason is not None:
        has_reason = [reason in text for text in candidates["reason"].to_pylist()]
        candidates = candidates.filter(pa.array(has_reason, pa.bool_()))
    if not letters:
        return candidates
    found_places = letter_keys(candidates)
    indexes = list[int]()
    for letter in letters:
        letter_key = _parse_place(letter)
        if letter_key not in found_places:
            raise DataError(
                f"'{source}' has no dead letter {letter}: see `tidemark dead-letters list "
                f"{source}`."
            )
        indexes.append(found_places.index(letter_key))
    # A dead letter that the user names twice is one.
    return candidates.take(list(dict.fromkeys(indexes)))


def _fix_content(letters: "pa.Table", file: Path | None, command: str | None) -> "pa.Table":
    """Return the dead letters with their bytes replaced by the user's file or command, if given."""
    import pyarrow as pa

    if file is not None and letters.num_rows != 1:
        raise DefinitionError(
            f"--payload-file fixes one dead letter, but {letters.num_rows:,} are selected. Name "
            "one as ARRIVAL:POSITION, or use --payload-command."
        )
    content: list[bytes | None] = letters["bytes"].to_pylist()
    if file is not None:
        try:
            content = [file.read_bytes()]
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise DataError(f"File '{file}' can't be read: {why}.") from None
    names = [_name_letter(row) for row in letters.select(["arrival", "position"]).to_pylist()]
    for name, value in zip(names, content, strict=True):
        if value is None:
            raise DataError(
                f"The bytes of dead letter {name} were not stored: send the corrected record again "
                "(for Parquet, in a new file), or give its bytes by --payload-file."
            )
    if command is not None:
        for number, name in enumerate(names):
            content[number] = _run_command(command, name, content[number] or b"")
    index = letters.column_names.index("bytes")
    return letters.set_column(index, "bytes", pa.array(content, pa.binary()))


def _run_command(command: str, letter: str, content: bytes) -> bytes:
    process = subprocess.run(["sh", "-c", command], input=content, capture_output=True, check=False)
    if process.returncode:
        from tidemark.engine.process import summarize_output

        reason = summarize_output(process.stderr.decode(errors="replace").splitlines())
        raise DataError(
            f"The command of --payload-command failed at dead letter {letter} with exit code "
            f"{process.returncode}: {reason}. Nothing was replayed: correct the command."
        )
    return process.stdout


def _count_letters(letters: "pa.Table") -> list[dict[str, Any]]:
    groups = defaultdict[tuple[str, str | None, str], list[dict[str, Any]]](list)
    for row in letters.to_pylist():
        groups[f"{row['arrived_at']:%Y-%m-%d}", row["topic"], row["reason"]].append(row)
    counts = list[dict[str, Any]]()
    for (day, topic, reason), rows in groups.items():
        replayed = sum(row["replayed_by"] is not None for row in rows)
        counts.append(
            {
                "day": day,
                "topic": topic,
                "reason": reason,
                "letters": len(rows),
                "replayed": replayed,
                "first": _name_letter(rows[0]),
            }
        )
    return counts


def _parse_place(letter: str) -> tuple[int, int]:
    arrival, colon, position = letter.partition(":")
    if not (colon and arrival.isdecimal() and position.isdecimal()):
        raise DefinitionError(
            f"'{letter}' is not a dead letter: write ARRIVAL:POSITION, for example 3:17."
        )
    return int(arrival), int(position)


def _name_letter(row: dict[str, Any]) -> str:
    return f"{row['arrival']}:{row['position']}"


def _to_plain(row: dict[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in row.items() if name not in ("arrival", "position")}
    headers = {h["key"]: _as_text(h["value"]) for h in row["headers"] or ()}
    return {
        "letter": _name_letter(row),
        **fields,
        "arrived_at": row["arrived_at"].isoformat(),
        "timestamp": row["timestamp"] and row["timestamp"].isoformat(),
        "bytes": _as_text(row["bytes"]),
        "key": _as_text(row["key"]),
        "headers": headers or None,
    }


def _as_text(content: bytes | None) -> str | None:
    """Return bytes as text if they are printable UTF-8, otherwise in hexadecimal."""
    if content is None:
        return None
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return f"0x{content.hex()}"
    if text.isprintable() or text.strip().isprintable():
        return text
    return f"0x{content.hex()}"
