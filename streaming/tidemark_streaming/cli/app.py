"""The Typer app with all commands, and the exit codes.

A `TidemarkError` is one message on stderr and exit code 2. Ctrl-C is exit code 130 without a
message. If the engine fails, the message names its log; if an object store fails, the exit code is
3. Any other exception is a fault of Tidemark and keeps its traceback.
"""

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tidemark import __version__
from tidemark.base.errors import EngineError, TidemarkError
from tidemark.base.project import find_project
from tidemark_streaming.base.extra import find_extras
from tidemark_streaming.cli.console import print_error
from tidemark_streaming.cli.getting_started import demo, new, services
from tidemark_streaming.cli.ingestion import dead_letters, end, ingest, kafka, play
from tidemark_streaming.cli.inspection import quarantine, show, simulate, tap, trace, verify
from tidemark_streaming.cli.marts import dbt_sources, marts
from tidemark_streaming.cli.operations import erase, evolve, fsck, maintain, watermark
from tidemark_streaming.cli.processing import compute, correct, emit, replay, stream

INTERRUPTED = 130

PANELS = {
    "Getting started": ("new", "demo", "up", "status", "down"),
    "Ingestion": ("ingest", "play", "end", "dead-letters", "kafka"),
    "Processing": ("run", "stream", "backfill", "correct", "replay", "sink"),
    "Inspection": ("show", "trace", "tap", "parity", "lateness", "quarantine", "simulate"),
    "Marts": ("marts", "dbt", "dbt-sources"),
    "Operations": ("diff", "rebuild", "watermark", "maintain", "fsck", "erase", "drop"),
    "Extras": tuple(extra.name for extra in find_extras()),
}
"""The commands of each help panel, in order."""


class Commands(TyperGroup):
    """The commands; an error in one of them becomes a message and an exit code."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the names in the order of the help panels, then those without a panel."""
        grouped = [name for names in PANELS.values() for name in names]
        return [*grouped, *(name for name in self.commands if name not in grouped)]

    # Typer overrides it with a class of its own copy of click, which it does not export.
    def invoke(self, ctx: typer.Context) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
        find_project()
        try:
            return super().invoke(ctx)
        except TidemarkError as error:
            print_error(str(error))
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            failed = _engine_failure(error) or _store_failure(error)
            if failed is None:
                raise
            print_error(str(failed))
            raise typer.Exit(failed.exit_code) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
    help="Windowed aggregations, defined once and run as batch and as stream with equal results."
    "\n\nStart with `tidemark demo`; then `tidemark up` opens the platform in the browser. "
    "`tidemark new` creates your own project.",
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"tidemark {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


modules = (
    *(demo, services, ingest, end, compute, correct, stream, emit, verify, quarantine, marts),
    *(
        dbt_sources,
        maintain,
        dead_letters,
        erase,
        evolve,
        fsck,
        kafka,
        new,
        play,
        replay,
        show,
        simulate,
        tap,
        trace,
        watermark,
    ),
)
for module in (*modules, *find_extras()):
    module.register(app)
for info in (*app.registered_commands, *app.registered_groups):
    info.rich_help_panel = next((p for p, names in PANELS.items() if info.name in names), None)


def _store_failure(error: Exception) -> TidemarkError | None:
    """Return the error of an object store's client as one message; None for other errors."""
    if "deltalake" not in sys.modules:
        return None
    from tidemark.store.refusals import store_failure

    return store_failure(error)


def _engine_failure(error: Exception) -> EngineError | None:
    """Return the error of the engine's client as one message; None for other errors."""
    pyspark: Any = sys.modules.get("pyspark.errors")
    grpc: Any = sys.modules.get("grpc")
    kinds = tuple(
        kind
        for kind in (getattr(pyspark, "PySparkException", None), getattr(grpc, "RpcError", None))
        if kind is not None
    )
    if not isinstance(error, kinds):
        return None
    from tidemark.base.settings import Settings

    lines = str(error).strip().splitlines() or [type(error).__name__]
    return EngineError(
        f"The engine failed: {lines[0].rstrip('.')[:300]}. Its log file is in "
        f"'{Settings().home / 'logs'}'; `tidemark status` shows whether it is still running."
    )
