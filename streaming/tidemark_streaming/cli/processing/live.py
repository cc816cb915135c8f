"""The live view of a stream: arrivals, published windows and the watermark.

The view reads the tables without the engine, so it does not slow the stream down.
"""

from collections import deque
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

from tidemark.base.instants import format_duration, format_instant
from tidemark.base.settings import Settings
from tidemark.define.definition import Definition
from tidemark_streaming.cli.console import format_time
from tidemark_streaming.snapshot.ledger_reader import NewRuns
from tidemark_streaming.snapshot.progress import AssetSnapshot, SourceSnapshot
from tidemark_streaming.snapshot.snapshot import Snapshot

_SHOWN = 6


@dataclass(frozen=True)
class Look:
    """The state of an asset and its source, as the tables showed it at one time.

    Args:
        published: the rows that the newest run published; empty if an earlier `Look` had them.
    """

    source: SourceSnapshot
    asset: AssetSnapshot
    published: list[dict[str, Any]]


class View:
    """The live view of one asset's stream.

    Args:
        expected: the number of arrivals that the stream will process while it is shown, for a
            progress bar; None if it is unknown.
    """

    def __init__(
        self, settings: Settings, definition: Definition, expected: int | None = None
    ) -> None:
        self._snapshot = Snapshot(settings, [definition])
        self._transform = definition
        self._expected = expected
        self._newer = NewRuns(self._snapshot, definition.name)
        self._run = ""
        self._recent: deque[dict[str, Any]] = deque(maxlen=_SHOWN)
        self._first: Look | None = None

    def read_state(self) -> Look:
        """Read the tables. Include published rows only if a run is new since the last call."""
        t = self._transform
        asset = self._snapshot.read_asset(t)
        newest = self._snapshot.last_run(t.name)
        published: list[dict[str, Any]] = []
        if newest is not None and newest["run"] != self._run:
            self._run = newest["run"]
            published = self._snapshot.last_published_rows(t.name, newest["commit_number"])
            self._recent.extendleft(reversed(published[:_SHOWN]))
        look = Look(self._snapshot.read_source(t.source), asset, published)
        self._first = self._first or look
        return look

    def take_new_runs(self) -> list[dict[str, Any]]:
        """Return the runs in the ledger since the last call; all runs at the first call."""
        return self._newer.take_runs()

    def render_panel(self, look: Look) -> RenderableType:
        """Return the view for a terminal."""
        source = look.source
        asset = look.asset
        first = self._first or look
        body = Table.grid(padding=(0, 3))
        for _ in range(4):
            body.add_column()
        body.add_row(
            "[dim]arrivals ingested",
            f"[bold]{source.arrivals:,}",
            "[dim]windows published",
            f"[bold]{asset.windows:,}",
        )
        body.add_row(
            "[dim]arrivals processed",
            f"[bold]{asset.as_of + 1:,}",
            "[dim]open",
            f"[bold cyan]{asset.open:,}",
        )
        body.add_row(
            "[dim]newest event",
            format_instant(source.newest_event) or "-",
            "[dim]final",
            f"[bold green]{asset.final:,}",
        )
        body.add_row(
            "[dim]watermark",
            self._describe_watermark(look),
            "[dim]late",
            self._format_increase(asset.late, first.asset.late, "yellow"),
        )
        limit_title = ""
        limit = ""
        if asset.limited_by:
            limit_title = "[dim]back-pressure"
            limit = f"[yellow]{asset.waiting_text}"
        too_late = self._format_increase(asset.too_late, first.asset.too_late, "red")
        body.add_row(limit_title, limit, "[dim]too late", too_late)
        parts: list[RenderableType] = [body]
        if self._expected is not None:
            parts.append(ProgressBar(self._expected, asset.as_of + 1 - (first.asset.as_of + 1)))
        parts += ["", "[dim]last published[/]", self._make_windows_table()]
        return Panel(Group(*parts), title=f"[bold]{self._transform.name}", title_align="left")

    def render_line(self, look: Look) -> str:
        """Return the view as one line, for a log."""
        source = look.source
        asset = look.asset
        line = (
            f"arrivals {asset.as_of + 1:,}/{source.arrivals:,}  watermark "
            f"{format_instant(asset.watermark)}  "
            f"open {asset.open:,}  final {asset.final:,}  late {asset.late:,}  "
            f"too late {asset.too_late:,}"
        )
        if asset.limited_by:
            line += f"  {asset.waiting_text}"
        return line

    def _describe_watermark(self, look: Look) -> str:
        mark = look.source.watermark
        newest = look.source.newest_event
        if mark is None or newest is None or mark > newest:
            return format_instant(mark) or "-"
        return f"{format_instant(mark)} [dim]({format_duration(newest - mark)} behind)"

    def _format_increase(self, current: int, previous: int, colour: str) -> str:
        text = f"[bold {colour}]{current:,}[/]"
        if current > previous:
            text += f" [dim](+{current - previous:,})"
        return text

    def _make_windows_table(self) -> Table:
        t = self._transform
        table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
        columns = ["window_start", *t.keys, *t.aggregates, "late_events", "revision", "timing"]
        for name in columns:
            table.add_column("window" if name == "window_start" else name, no_wrap=True)
        for row in self._recent:
            table.add_row(*(_format_cell(row[name]) for name in columns))
        return table


def _format_cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, datetime):
        return format_time(value)
    return escape(str(value))
