"""The last page of the demo: results, two charts, and the next steps."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from rich.table import Table

from tidemark.base.instants import as_datetime, format_duration
from tidemark.base.settings import Settings
from tidemark.quality.results import CheckResult
from tidemark_streaming.cli.console import report_step, result_console
from tidemark_streaming.snapshot.check_results import results_since
from tidemark_streaming.snapshot.snapshot import Snapshot
from tidemark_streaming.snapshot.tables import Tables

if TYPE_CHECKING:
    from tidemark.define.transform import WindowedTransform
    from tidemark.store.event_log.arrival import Arrival
    from tidemark.store.warehouse import Warehouse

_SHOWN = 12
"""Number of arrivals in the chart of arrivals: three days."""

_PAGES = {
    "the flights, from source to windows": "assets/departures_hourly"
    "?view=lineage&lineageScope=upstream&lineageDepth=3",
    "their hours, and the days that are complete": "assets/departures_hourly?view=partitions",
    "their data-quality checks": "assets/departures_hourly?view=checks",
    "the lineage of a mart": "assets/daily_punctuality"
    "?view=lineage&lineageScope=upstream&lineageDepth=6",
    "the runs that update the other assets": "runs",
    "sensors and schedules": "automation",
}


def show_results(
    store: "Warehouse",
    transform: "WindowedTransform",
    streamed: Sequence["Arrival"],
    settings: Settings,
) -> None:
    """Print the results and draw the charts."""
    with report_step("draw two charts"):
        pictures = _draw_charts(store, transform, streamed, settings.home / "pictures")
    hours = _read_published(settings, transform)
    loss = _loss_table(settings, transform)
    validated = _expectations_table(settings, transform)
    result_console().print(
        "", _airports_table(hours), "", _worst_hours_table(hours), "", loss, "", validated, ""
    )
    for text, path in pictures:
        result_console().print(
            f"[bold]{text}[/]\n  {path}\n  {path.with_suffix('.html')}", soft_wrap=True
        )


def print_next_steps(settings: Settings) -> None:
    """Print the addresses of the platform and the next commands."""
    from tidemark.engine.launch import cache
    from tidemark_streaming.home import services

    url = services.webserver_url(settings)
    # In a checkout, `tidemark` is not on PATH; an installed package has no Makefile.
    program = "make" if cache.in_checkout() else "tidemark"
    result_console().print("\n[bold]Where to look next[/]")
    for purpose, page in _PAGES.items():
        result_console().print(f"  {purpose}: {url}/{page}", soft_wrap=True)
    result_console().print(
        "\nThe results of the stream appear there within a minute; the launched runs take another "
        f"minute. [bold]{program} demo[/] streams the next days; [bold]{program} down[/] stops "
        "everything, including the engine.",
        soft_wrap=True,
    )


def _draw_charts(
    store: "Warehouse", transform: "WindowedTransform", streamed: Sequence["Arrival"], folder: Path
) -> list[tuple[str, Path]]:
    from tidemark.charts import picture, picture_data

    late = picture_data.read_events(store, transform, streamed)
    late = late[late["verdict"] != picture.VERDICTS[0]].groupby("arrival").size()
    shown = max(
        (streamed[i : i + _SHOWN] for i in range(max(1, len(streamed) - _SHOWN + 1))),
        key=lambda part: sum(int(late.get(a.arrival, 0)) for a in part),
    )
    begin = as_datetime(shown[0].arrived_at)
    end = as_datetime(shown[-1].arrived_at)
    arrivals = picture.arrivals_chart(
        picture_data.read_events(store, transform, shown),
        shown,
        title=f"Flights arrive out of order: {begin:%B %-d} to {end:%B %-d, %Y}",
        allowed_lateness=transform.allowed_lateness,
    )
    loss = picture.late_loss_chart(
        picture_data.read_days(store, transform),
        title=(
            "Events lost with an allowed lateness of "
            f"{format_duration(transform.allowed_lateness)}: "
            f"{transform.name}"
        ),
        allowed_lateness=transform.allowed_lateness,
    )
    return [
        (
            "Event time against processing time",
            picture.save_chart(arrivals, folder, "arrivals").png,
        ),
        ("Late loss by day", picture.save_chart(loss, folder, "late_loss").png),
    ]


def _read_published(settings: Settings, transform: "WindowedTransform") -> pd.DataFrame:
    table = Tables.of_database(settings).read(transform.published_table)
    if table is None:
        return pd.DataFrame()
    return table.to_pandas()


def _airports_table(hours: pd.DataFrame) -> Table:
    weighted = hours.assign(minutes=hours["mean_delay"] * (hours["flights"] - hours["cancelled"]))
    table = Table(title="Departures by airport", title_justify="left")
    for name in ("airport", "flights", "cancelled", "mean delay", "worst delay", "late records"):
        table.add_column(name, justify="left" if name == "airport" else "right")
    for airport, rows in weighted.groupby("origin"):
        flown = rows["flights"].sum() - rows["cancelled"].sum()
        table.add_row(
            str(airport),
            f"{rows['flights'].sum():,}",
            f"{rows['cancelled'].sum():,}",
            f"{rows['minutes'].sum() / flown:.1f} min",
            f"{rows['worst_delay'].max():.0f} min",
            f"{rows['late_events'].sum():,}",
        )
    return table


def _worst_hours_table(hours: pd.DataFrame) -> Table:
    table = Table(title="The worst hours (of ten flights or more)", title_justify="left")
    for name in ("hour (UTC)", "airport", "flights", "cancelled", "mean delay"):
        table.add_column(name, justify="right")
    for row in hours[hours["flights"] >= 10].nlargest(5, "mean_delay").itertuples():
        table.add_row(
            f"{row.window_start:%Y-%m-%d %H:%M}",
            str(row.origin),
            f"{row.flights}",
            f"{row.cancelled}",
            f"{row.mean_delay:.0f} min",
        )
    return table


def _loss_table(settings: Settings, transform: "WindowedTransform") -> Table:
    late_loss = Tables.of_database(settings).read(transform.late_loss_table)
    rows = pd.DataFrame() if late_loss is None else late_loss.to_pandas()
    title = (
        "Windows with events that were too late (allowed lateness "
        f"{format_duration(transform.allowed_lateness)})"
    )
    table = Table(title=title, title_justify="left")
    for name in ("hour (UTC)", "airport", "events lost", "mean delay as streamed", "complete"):
        table.add_column(name, justify="right")
    if rows.empty:
        return table
    change = (rows["mean_delay_complete"] - rows["mean_delay"]).abs()
    for row in rows.loc[change.nlargest(5).index].itertuples():
        table.add_row(
            f"{row.window_start:%Y-%m-%d %H:%M}",
            str(row.origin),
            f"{row.lost_events}",
            f"{row.mean_delay:.1f} min",
            f"{row.mean_delay_complete:.1f} min",
        )
    return table


def _expectations_table(settings: Settings, transform: "WindowedTransform") -> Table:
    """Return a table of the validation results.

    The results of all runs are added up, so a window that late events changed counts again.
    """
    table = Table(title="Expectations of the windows, by run", title_justify="left")
    shown = "first failure in the last failed run"
    for name in ("expectation", "level", "validations", "failed", shown):
        table.add_column(name, justify="right" if name in ("validations", "failed") else "left")
    by_expectation: dict[str, list[CheckResult]] = {}
    for result in results_since(Snapshot(settings), transform.name):
        by_expectation.setdefault(result.expectation, []).append(result)
    for expectation, results in by_expectation.items():
        validated = 0
        failed = 0
        first_failure = ""
        for result in results:
            validated += result.rows_validated
            failed += result.rows_failed
            if not result.success:
                first_failure = result.observed.split("; ")[0]
        table.add_row(expectation, results[0].level, f"{validated:,}", f"{failed:,}", first_failure)
    return table
