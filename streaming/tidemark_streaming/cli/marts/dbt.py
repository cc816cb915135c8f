"""`tidemark dbt`: dbt models on published windows."""

import os
import subprocess
from collections import Counter
from dataclasses import asdict
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tidemark.base.counts import format_count
from tidemark.base.errors import DataError, DefinitionError, describe_unknown
from tidemark.base.files import atomic
from tidemark_streaming.cli.console import (
    format_seconds,
    message_console,
    print_table,
    report_step,
    result_console,
)
from tidemark_streaming.cli.context import Home
from tidemark_streaming.cli.output import Output, with_json

_DBT_COMMAND = "COMMAND"
"""The name, in the help, for each command of dbt itself."""

_WRITING_COMMANDS = {"build", "clone", "retry", "run", "run-operation", "seed", "snapshot"}
"""The commands of dbt that write tables."""

_DIFFERS = 1
"""The exit code if the file does not match the definitions."""


class _DbtGroup(TyperGroup):
    """Tidemark's commands for dbt. dbt runs any other command, with its arguments unchanged."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 (Typer's own class)
        """Take the arguments after `--` for a command of dbt, even if it is named `build`."""
        if args[:1] == ["--"]:
            args = [_DBT_COMMAND, *args[1:]]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        """Find the command that the arguments name."""
        if args[0] not in self.commands:
            args = [_DBT_COMMAND, *args]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_DbtGroup,
    no_args_is_help=True,
    context_settings={"ignore_unknown_options": True},
    help="Build the marts with dbt, and run any dbt command on their project."
    "\n\n`tidemark dbt -- --help` lists dbt's own commands. `--` is also for dbt's own `build`: "
    "`tidemark dbt -- build --select …`."
    "\n\nExample: `tidemark dbt build`",
)


@app.command("build")
@with_json
def build_marts(
    names: Annotated[
        list[str] | None, typer.Argument(help="Marts to build; all if omitted.")
    ] = None,
    full_refresh: Annotated[
        bool, typer.Option("--full-refresh", help="Rebuild completely, not only what changed.")
    ] = False,
) -> Output:
    """Build and test the dbt marts, for the days whose windows changed since the last build.

    Without names, marts whose source tables do not exist yet are skipped and listed.

    Example: `tidemark dbt build orders_daily`
    """
    from tidemark import engine
    from tidemark.base import extras
    from tidemark_streaming.dbt import marts as builder

    extras.require_extra("marts")
    home = Home()
    project = builder.Marts(home.settings)
    available = project.list_marts()
    selected = names or []
    unknown = [name for name in selected if name not in available]
    if unknown:
        raise DefinitionError(
            f"There is no mart '{unknown[0]}'. Available: {', '.join(available)}."
        )
    store = home.open_warehouse()
    missing = project.find_missing_tables(store.has_table)
    buildable = [name for name in available if name not in missing]
    builder.raise_if_any(
        builder.describe_missing_table(missing, selected or ([] if buildable else available))
    )
    chosen = selected or buildable
    with report_step(f"build {', '.join(chosen)}") as work:
        address = engine.ensure_engine(home.settings)
        outcomes = project.build_marts(store, address, chosen, full_refresh=full_refresh)
        tests = Counter(o.status for o in outcomes if o.kind == "test")
        work.note = f"{format_count(tests.total(), 'test')}, {tests['pass']} passed"
    if not selected:
        for name in sorted(set(available) - set(chosen)):
            message_console().print(
                f"[dim]skipped: {name}, because '{missing[name][0]}' does not exist yet[/]"
            )
    rows = list[tuple[str, str, str]]()
    for outcome in outcomes:
        if outcome.kind == "model" or not outcome.has_passed:
            rows.append((outcome.name, outcome.status, format_seconds(outcome.seconds)))
    failed = builder.describe_failure(outcomes)
    return Output(
        [asdict(outcome) for outcome in outcomes],
        lambda: print_table(("model", "is", "took"), rows),
        DataError(failed) if failed else None,
    )


@app.command("sources")
def generate_sources(
    assets: Annotated[
        list[str] | None,
        typer.Argument(help="Assets and derived sources to add; all if the file does not exist."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Write nothing; exit with 1 if something would change."),
    ] = False,
) -> None:
    """Generate the sources of the dbt project, `models/sources.yml`, from the definitions.

    The file lists the same assets as before, except those that no longer exist. The command
    overwrites the whole file: write descriptions, tests and other sources into other files.

    Example: `tidemark dbt sources orders_hourly`
    """
    from tidemark.define.derived.derived_source import DerivedSource
    from tidemark_streaming.dbt import sources
    from tidemark_streaming.dbt.marts import Marts

    home = Home()
    path = Marts(home.settings).folder / sources.PLACE
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    derived = {s.name: s for s in home.definitions.all_sources() if isinstance(s, DerivedSource)}
    available = {**derived, **home.definitions.transforms}
    for asset in assets or ():
        if asset not in available:
            raise DefinitionError(describe_unknown("asset", asset, available))
    if text and not sources.is_generated(text):
        raise DefinitionError(
            f"{path} was not generated by `tidemark dbt sources`, which would overwrite it: rename "
            "the file, and run the command again."
        )
    before = sources.read_listed_names(text, path)
    listed = [*before, *(assets or ())]
    if not listed:
        listed = list(available)
    names = [name for name in dict.fromkeys(listed) if name in available]
    generated = sources.generate_sources(available[name] for name in names)
    if generated == text:
        result_console().print(f"{path} matches the definitions.", soft_wrap=True)
    elif check:
        message = f"{path} does not match the definitions: `tidemark dbt sources` updates it."
        result_console().print(message, soft_wrap=True)
        raise typer.Exit(_DIFFERS)
    else:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic.write_atomically(path, generated)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise DataError(f"{path} can't be written: {reason}.") from None
        result_console().print(f"{path}: {', '.join(names)}", soft_wrap=True)
    for name in before:
        if name not in available:
            result_console().print(f"[dim]'{name}' is not defined any more.[/]")


@app.command(
    _DBT_COMMAND,
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
)
def run_dbt(
    arguments: Annotated[list[str] | None, typer.Argument(help="Options of the command.")] = None,
) -> None:
    """Run any other dbt command with its options, such as `test`, on the project of the marts, with
    Tidemark's engine.

    `tidemark dbt COMMAND --help` lists its options.

    Example: `tidemark dbt source freshness`
    """
    from tidemark import engine
    from tidemark.base import extras
    from tidemark_streaming.dbt.mart_locks import lock_marts
    from tidemark_streaming.dbt.marts import Marts

    extras.require_extra("marts")
    home = Home()
    project = Marts(home.settings)
    dbt_arguments = arguments or ["--help"]
    # Help and the version need no engine.
    if not {"--help", "-h", "--version"}.isdisjoint(dbt_arguments):
        raise typer.Exit(_call_dbt(dbt_arguments, {}))
    written_marts = list[str]()
    if not _WRITING_COMMANDS.isdisjoint(dbt_arguments):
        written_marts = project.list_marts()
    with lock_marts(home.settings, written_marts):
        home.open_warehouse().register_missing_tables()
        variables = project.environment_variables(engine.ensure_engine(home.settings))
        code = _call_dbt(dbt_arguments, variables)
    raise typer.Exit(code)


def _call_dbt(arguments: list[str], variables: dict[str, str]) -> int:
    """Run dbt in this terminal. Return its exit code."""
    from tidemark_streaming.dbt.dbt_process import dbt_command

    environment = {**os.environ, **variables}
    with subprocess.Popen(dbt_command(arguments), env=environment) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                # dbt is interrupted too, and cancels its queries.
                continue
