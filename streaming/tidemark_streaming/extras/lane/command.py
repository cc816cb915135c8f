"""`tidemark lane`: copy records from topic to topic in real time."""

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.base.errors import DefinitionError, EngineError, TidemarkError
from tidemark.base.settings import Settings
from tidemark_streaming.base import logs
from tidemark_streaming.cli.console import (
    message_console,
    print_status,
    print_warning,
    report_step,
    result_console,
)
from tidemark_streaming.cli.interrupt import handle_termination
from tidemark_streaming.cli.output import Json, print_json
from tidemark_streaming.extras.lane.name import NAME

if TYPE_CHECKING:
    from tidemark_streaming.base.foreground import Entry
    from tidemark_streaming.extras.lane import Lane
    from tidemark_streaming.extras.lane.query import Queries, Trigger

LOOK_EVERY = 1.0
"""Seconds between two checks of the queries."""

_TRIGGERS = ("real-time", "micro-batch")


def run_command(
    name: Annotated[
        str | None, typer.Argument(help="The lane; lists all lanes if omitted.")
    ] = None,
    trigger: Annotated[str, typer.Option(help="real-time or micro-batch.")] = "real-time",
    detach: Annotated[
        bool, typer.Option("--detach", help="Run it in the background and return.")
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Stop the lane, and its Spark.")] = False,
    json: Json = False,
) -> None:
    """Copy records from topic to topic within milliseconds: decoded, masked, prepared and routed.

    It runs until Ctrl-C or SIGTERM, in a Spark process of its own, and restarts if that is killed.
    Delivery is at least once: records since the last checkpoint are sent again.

    Example: `tidemark lane clicks_clean`
    """
    from tidemark_streaming.base import foreground
    from tidemark_streaming.extras.lane import home
    from tidemark_streaming.extras.lane.definition import Lane
    from tidemark_streaming.home import domains

    settings = Settings()
    if name is None:
        _list_lanes(settings, json=json)
        return
    if trigger not in _TRIGGERS:
        raise DefinitionError(f"The trigger must be {' or '.join(_TRIGGERS)} (got '{trigger}').")
    if not stop:
        logs.begin_logging(settings, NAME)
    lanes = domains.load_domains(settings.domains).pipelines_of(Lane)
    lane = domains.find_object(settings, NAME, name, lanes)
    if stop:
        with report_step(f"stop {lane}"):
            expected = foreground.forget_command(settings, NAME, name)
            if not (home.stop_lane(settings, name) or expected):
                raise EngineError(f"{lane} is not running.")
        return
    if detach:
        _start_lane(settings, lane, trigger)
        foreground.forget_command(settings, NAME, name)
        result_console().print(
            f"{lane} is running; `tidemark lane {name} --stop` stops it.", soft_wrap=True
        )
        return
    with foreground.record_running(settings, NAME, name) as entry:
        queries = _start_lane(settings, lane, trigger)
        handle_termination()
        try:
            with suppress(KeyboardInterrupt):
                _supervise_lane(settings, lane, trigger, queries, entry)
        finally:
            home.stop_lane(settings, name)
            print_status(f"{lane} has stopped.")


def _start_lane(settings: Settings, lane: "Lane", trigger: "Trigger") -> "Queries":
    from tidemark.store.warehouse import Warehouse
    from tidemark_streaming.extras.lane import home, query

    with report_step(f"start {lane}") as work:
        lane_settings = home.ensure_engine(settings, lane, work.show_activity)
        spark = home.open_session(lane_settings)
        try:
            tables = Warehouse.of_project(lane_settings, spark)
            queries = query.start_queries(tables, lane, lane_settings.home, trigger)
        except Exception:
            # The supervisor may retry this many times.
            spark.client.close()
            raise
        work.note = f"{trigger}, to {', '.join(lane.outputs)}"
    return queries


def _supervise_lane(
    settings: Settings, lane: "Lane", trigger: "Trigger", queries: "Queries", entry: "Entry"
) -> None:
    """Supervise a lane: restart it if its Spark process exits or brokers do not respond."""
    from tidemark_streaming.base.outage import Outage
    from tidemark_streaming.extras.lane import home

    outage = Outage(print_warning)
    log = _CheckpointLog(lane, home.lane_folder(settings, lane.name))
    while True:
        try:
            if fault := queries.find_fault():
                raise fault
            outage.end_outage()
            if logs.is_structured():
                log.log_progress(queries)
            time.sleep(LOOK_EVERY)
        except TidemarkError as error:
            entry.mark_waiting(error)
            queries = outage.retry_attempt(error, lambda: _start_lane(settings, lane, trigger))
            entry.mark_healthy(is_restart=True)


class _CheckpointLog:
    """Logs a lane's new checkpoints and the number of its new dead letters."""

    def __init__(self, lane: "Lane", folder: Path) -> None:
        from tidemark_streaming.extras.lane.checkpoints import read_newest

        self._lane = lane
        self._place = folder
        self._newest = read_newest(folder)
        self._letters = -1

    def log_progress(self, queries: "Queries") -> None:
        """Log the checkpoints and dead letters since the last call."""
        from tidemark_streaming.extras.lane.checkpoints import read_newest

        name = self._lane.name
        current = read_newest(self._place)
        before = self._newest
        if current is not None and current != before:
            carried = None if before is None else current.count_since(before)
            ends = {f"{topic}-{n}": end for (topic, n), end in sorted(current.ends.items())}
            logs.log_event("carried", lane=name, batch=current.batch, offsets=carried, through=ends)
            self._newest = current
        letters = queries.letters.lastProgress
        if letters is None or letters.batchId == self._letters or not letters.numInputRows:
            return
        self._letters = letters.batchId
        if (count := letters.sink.numOutputRows) > 0:
            logs.log_warning(
                "dead letters", lane=name, topic=self._lane.dead_letter_topic.name, letters=count
            )


def _list_lanes(settings: Settings, *, json: bool) -> None:
    from tidemark_streaming.extras.lane import home
    from tidemark_streaming.extras.lane.definition import Lane
    from tidemark_streaming.home import domains

    lanes = domains.load_domains(settings.domains).pipelines_of(Lane).values()
    running = {lane.name: home.is_running(settings, lane.name) for lane in lanes}
    came = {lane.name: lane.inputs for lane in lanes}
    went = {lane.name: lane.outputs for lane in lanes}
    if json:
        print_json(
            [{"lane": n, "runs": r, "from": came[n], "to": went[n]} for n, r in running.items()]
        )
        return
    for name, runs in running.items():
        state = "[green]running[/]" if runs else "[red]not running[/]"
        where = f"{', '.join(came[name])} → {', '.join(went[name])}"
        result_console().print(f"[bold]{name}[/]  {state}  {where}", soft_wrap=True)
    if not running:
        message_console().print(
            "No domain defines a lane. Lanes are defined in the module `lanes` of a domain."
        )
