"""`tidemark new`: create a project that runs unchanged."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.base.errors import DefinitionError
from tidemark_streaming.cli.console import print_error, result_console

if TYPE_CHECKING:
    from tidemark_streaming.starter.sample import Sample


def create_project(
    name: Annotated[
        str | None,
        typer.Argument(
            help="The project: its folder and its package; required if the command can't ask."
        ),
    ] = None,
    kafka: Annotated[
        bool | None,
        typer.Option(
            "--kafka/--files",
            help="Events come from a Kafka topic, or as CSV files; files if omitted.",
        ),
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(
            "--from-csv",
            metavar="CSV",
            help="Start from your own events: a CSV file with a header.",
        ),
    ] = None,
    events: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A name for the events; orders if omitted."),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The event-time column; ordered_at, or the first of --from-csv that fits.",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The column to group windows by; city, or the first of --from-csv that fits.",
        ),
    ] = None,
    value: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The numeric column to sum; amount, or the first of --from-csv that fits.",
        ),
    ] = None,
    ask: Annotated[
        bool,
        typer.Option(
            "--interactive/--defaults",
            help="Ask for missing options, or use the defaults.",
        ),
    ] = True,
) -> None:
    """Create a project: source, connector, transform, Dagster definitions, dbt models, scenario,
    test and sample events.

    Example: `tidemark new shop --from-csv orders.csv --time ordered_at --key city --value amount`
    """
    from tidemark_streaming.starter import choices as chosen
    from tidemark_streaming.starter.sample import read_sample
    from tidemark_streaming.starter.write import write_project

    if like is not None and kafka:
        raise DefinitionError(
            "--from-csv can't be used with --kafka: it is for events that are read from files."
        )
    asks = ask and sys.stdin.isatty()
    if name is None and not asks:
        raise DefinitionError("A project needs a name, for example `tidemark new shop`.")

    def say(answer: str | None, subject: str, default: str, check: Callable[[str], None]) -> str:
        return answer or (_ask_user(subject, default, check) if asks else default)

    name = say(name, "Name of the project", chosen.TEMPLATE["domain"], chosen.check_domain)
    chosen.check_domain(name)
    sample = None if like is None else read_sample(like)
    if kafka is None and like is None:
        kafka = (
            say(None, "Read events from 'files' or from 'kafka'", "files", _check_kind) == "kafka"
        )
    events = say(events, "Name of the events", chosen.TEMPLATE["events"], chosen.check_events)
    columns = list[str]()
    for answer, subject, field in (
        (time, "the event time", "time"),
        (key, "the key of the windows", "key"),
        (value, "the number to sum", "value"),
    ):
        check = _check_for(field, sample)
        columns.append(say(answer, f"Column of {subject}", _default_column(field, sample), check))
        check(columns[-1])
    choices = chosen.Choices(name, events, *columns, kind="kafka" if kafka else "files")
    if sample is not None:
        day = sample.first_day(choices.time)
        choices = replace(
            choices,
            columns=sample.columns,
            rename=sample.rename,
            computed=sample.computed,
            options=sample.options,
            begins=day,
        )
    folder = write_project(choices, Path.cwd(), like)
    begin = (folder / "README.md").read_text().partition("```sh\n")[2].partition("```")[0]
    lines = [f"created: {folder.name}/"]
    if sample is not None:
        grouping = f"{choices.value} by {choices.key} and hour of {choices.time}"
        lines.append(f"windows: {grouping}; --value, --key and --time choose other columns")
        for column, expression in sample.computed.items():
            lines.append(f"computed: {column} = {expression}; check it in sources.py")
        if sample.misfits:
            misfits = ", ".join(sample.misfits)
            lines.append(
                f"{like} has {misfits}: `tidemark ingest` will write them to the dead letters"
            )
    lines += ["", f"cd {folder.name}", begin]
    result_console().print("\n".join(lines), markup=False, highlight=False, soft_wrap=True, end="")


def _default_column(field: str, sample: "Sample | None") -> str:
    from tidemark_streaming.starter.choices import TEMPLATE

    if sample is None:
        return TEMPLATE[field]
    return getattr(sample, field)[0]


def _check_for(field: str, sample: "Sample | None") -> Callable[[str], None]:
    from tidemark_streaming.starter.choices import check_column

    def check(column: str) -> None:
        check_column(column)
        candidates = None if sample is None else getattr(sample, field)
        if candidates is not None and column not in candidates:
            raise DefinitionError(
                f"The file of --from-csv has no column '{column}' that fits --{field}; choose one "
                f"of: {', '.join(candidates)}."
            )

    return check


def _check_kind(kind: str) -> None:
    if kind not in ("files", "kafka"):
        raise DefinitionError(f"Events must be read from 'files' or from 'kafka' (got '{kind}').")


def _ask_user(question: str, default: str, check: Callable[[str], None]) -> str:
    while True:
        answer: str = typer.prompt(question, default=default, err=True)
        try:
            check(answer)
        except DefinitionError as error:
            print_error(str(error))
        else:
            return answer
