"""`tidemark dbt-sources`: generate a dbt project's sources from the definitions."""

from typing import Annotated

import typer

from tidemark.base import atomic
from tidemark.base.errors import DataError, DefinitionError, describe_unknown
from tidemark.base.settings import Settings
from tidemark_streaming.cli.console import out

DIFFERS = 1
"""The exit code if the file does not match the definitions."""


def register(app: typer.Typer) -> None:
    """Register the command."""
    app.command("dbt-sources")(dbt_sources)


def dbt_sources(
    assets: Annotated[
        list[str] | None,
        typer.Argument(help="Assets to add to the file; all if it does not exist."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Write nothing; exit with 1 if something would change."),
    ] = False,
) -> None:
    """Generate the sources of the dbt project, `models/sources.yml`, from the definitions.

    The command removes assets that no longer exist. It keeps descriptions, types, tests and
    configurations that you have added to the file.

    Example: `tidemark dbt-sources orders_hourly`
    """
    from tidemark_streaming import dbt_sources as sources
    from tidemark_streaming import domains
    from tidemark_streaming.marts import Marts

    settings = Settings()
    path = Marts(settings).folder / sources.PLACE
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    known = domains.load(settings.domains).transforms
    for asset in assets or ():
        if asset not in known:
            raise DefinitionError(describe_unknown("asset", asset, known))
    before = sources.chosen(text)
    names = dict.fromkeys([*before, *(assets or ())] if before or assets else known)
    made = sources.written([known[name] for name in names if name in known], text)
    if made == text:
        out().print(f"{path} matches the definitions.", soft_wrap=True)
    elif check:
        said = f"{path} does not match the definitions: `tidemark dbt-sources` updates it."
        out().print(said, soft_wrap=True)
        raise typer.Exit(DIFFERS)
    else:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Atomically, because the file has descriptions that users wrote.
            atomic.write(path, made)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise DataError(f"{path} can't be written: {reason}.") from None
        there = ", ".join(name for name in names if name in known)
        out().print(f"{path}: {there}", soft_wrap=True)
    for name in before:
        if name not in known:
            out().print(f"[dim]'{name}' is not defined any more.[/]")
