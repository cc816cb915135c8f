"""The Typer app with all commands, and the exit codes.

A `TidemarkError` ends a command with one message on stderr and exit code 2; Ctrl-C ends it with
exit code 130 and no message. If the engine fails, the message names the engine's log file. If an
object store fails, the exit code is 3. Any other exception is a bug in Tidemark, and its traceback
is shown.
"""

import sys
from collections.abc import Callable
from itertools import chain
from typing import Annotated, Any

import typer
from typer.core import TyperGroup, TyperOption

from tidemark import __version__
from tidemark.base.errors import (
    DefinitionError,
    EngineError,
    EngineLostError,
    TidemarkError,
    summarize_error,
)
from tidemark.base.project import find_project
from tidemark_streaming.base.extra import find_extras
from tidemark_streaming.cli.console import print_error
from tidemark_streaming.cli.getting_started import demo, dev, new, services
from tidemark_streaming.cli.ingestion import close, dead_letters, ingest
from tidemark_streaming.cli.inspection import parity, quarantine, scenarios, show, tap, trace
from tidemark_streaming.cli.marts import dbt
from tidemark_streaming.cli.operations import engine, erase, evolve, fsck, maintain, watermark
from tidemark_streaming.cli.processing import backfill, run, sink, stream

_INTERRUPTED = 130

PANELS: dict[str, dict[str, Callable[..., None] | typer.Typer]] = {
    "Getting started": {
        "new": new.create_project,
        "demo": demo.run_demo,
        "up": services.start_platform,
        "status": services.show_status,
        "down": services.stop_platform,
        "dev": dev.app,
    },
    "Ingestion": {
        "ingest": ingest.ingest_source,
        "close": close.close_source,
        "dead-letters": dead_letters.app,
    },
    "Processing": {
        "run": run.run_asset,
        "stream": stream.stream_asset,
        "backfill": backfill.backfill_windows,
        "sink": sink.publish_results,
    },
    "Inspection": {
        "show": show.show_rows,
        "trace": trace.trace_event,
        "tap": tap.tap_rows,
        "parity": parity.compare_tables,
        "quarantine": quarantine.app,
        "test": scenarios.run_scenarios,
    },
    "Marts": {"dbt": dbt.app},
    "Operations": {
        "diff": evolve.show_changes,
        "rebuild": evolve.rebuild_tables,
        "watermark": watermark.show_watermark,
        "maintain": maintain.maintain_tables,
        "fsck": fsck.check_tables,
        "erase": erase.erase_events,
        "drop": maintain.drop_tables,
        "engine": engine.app,
    },
    "Extras": {extra.name: extra.command_function for extra in find_extras()},
}
"""The commands by help panel, in the order of `tidemark --help`."""

_RENAMED = {
    "correct": "backfill ASSET --too-late",
    "dbt-sources": "dbt sources",
    "end": "close SOURCE",
    "kafka": "dev kafka",
    "lateness": "watermark SOURCE --recommend",
    "marts": "dbt build",
    "play": "ingest SOURCE --recorded",
    "replay": "backfill ASSET --since-arrival N",
    "simulate": "test FILE",
}
"""The new names of former commands, for the error message."""


class _Commands(TyperGroup):
    """The group of all commands. It turns an error of a command into a message and an exit code."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 (those of Typer)
        super().__init__(**settings)
        _hide_flag_types(self)

    def list_commands(self, ctx: typer.Context) -> list[str]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the names in the order of the help panels."""
        return list(chain.from_iterable(PANELS.values()))

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # noqa: ANN401  # pyright: ignore[reportIncompatibleMethodOverride]
        """Find the command that the arguments name. The name of a former command is an error that
        shows the new one."""
        name = args[0]
        if name in _RENAMED:
            raise DefinitionError(f"`tidemark {name}` is now `tidemark {_RENAMED[name]}`.")
        return super().resolve_command(ctx, args)

    # In Typer, the class of `ctx` is one of its own copy of click, which Typer does not export.
    def invoke(self, ctx: typer.Context) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
        find_project()
        try:
            return super().invoke(ctx)
        except EngineLostError as error:
            print_error(f"{error} {_describe_restart()}")
            raise typer.Exit(error.exit_code) from None
        except TidemarkError as error:
            print_error(str(error))
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            raise typer.Exit(_INTERRUPTED) from None
        except Exception as error:
            failed = _engine_failure(error) or _store_failure(error)
            if failed is None:
                raise
            print_error(str(failed))
            raise typer.Exit(failed.exit_code) from None


def _hide_flag_types(command: Any) -> None:  # noqa: ANN401 (a class that Typer does not export)
    """Leave out the type in the help of options without a value. Typer would show `<bool>`."""
    for option in (*command.params, command.get_help_option(typer.Context(command))):
        if isinstance(option, TyperOption) and option.is_flag:
            option.metavar = ""
    for subcommand in getattr(command, "commands", {}).values():
        _hide_flag_types(subcommand)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
    help="Windowed aggregations, defined once and run as batch and as stream with equal results."
    "\n\nStart with `tidemark demo`; then `tidemark up` opens the platform in the browser. "
    "`tidemark new` creates your own project.",
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"tidemark {__version__}")
        raise typer.Exit


@app.callback()
def accept_options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


for panel, commands in PANELS.items():
    for name, command in commands.items():
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=panel)
        else:
            app.command(name, rich_help_panel=panel)(command)


def _store_failure(error: Exception) -> TidemarkError | None:
    """Return the error to report if an object store's client failed; None for other errors."""
    if "deltalake" not in sys.modules:
        return None
    from tidemark.store.refusals import store_failure

    return store_failure(error)


def _engine_failure(error: Exception) -> EngineError | None:
    """Return the error to report if the engine's client failed; None for other errors."""
    pyspark: Any = sys.modules.get("pyspark.errors")
    grpc: Any = sys.modules.get("grpc")
    kinds = list[type[Exception]]()
    # A module that was never imported can't have raised the error.
    if pyspark is not None:
        kinds.append(pyspark.PySparkException)
    if grpc is not None:
        kinds.append(grpc.RpcError)
    if not isinstance(error, tuple(kinds)):
        return None
    return EngineError(f"The engine failed: {summarize_error(error)[:300]}. {_describe_log()}")


def _describe_log() -> str:
    """Return where the engine's log is."""
    # Settings take a tenth of a second to load, which most commands do anyway.
    from tidemark.base.settings import Settings

    settings = Settings()
    if settings.is_remote:
        return f"Its log is where the engine runs, at {settings.engine_address}."
    return (
        f"Its log file is in '{settings.home / 'logs'}'; `tidemark status` shows whether it is "
        "still running."
    )


def _describe_restart() -> str:
    """Return what to do after the engine was lost."""
    from tidemark.base.settings import Settings

    settings = Settings()
    if settings.is_remote:
        return f"Run the command again as soon as the engine at {settings.engine_address} answers."
    return (
        f"Its log file is in '{settings.home / 'logs'}'. Run the command again: it starts the "
        "engine if necessary."
    )
