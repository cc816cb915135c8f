"""Lanes as an extra: their command, Spark processes and progress."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from tidemark.base.settings import Settings
from tidemark_streaming.base.extra import Extra, Pipeline, PipelineOverview
from tidemark_streaming.extras.lane.name import NAME


class _LaneExtra(Extra):
    name = NAME
    module = "lanes"

    @property
    def pipeline_class(self) -> type[Pipeline]:
        from tidemark_streaming.extras.lane.definition import Lane

        return Lane

    @property
    def command_function(self) -> Callable[..., None]:
        # Not at the top: the commands import the extras.
        from tidemark_streaming.extras.lane.command import run_command

        return run_command

    def running_engines(self, settings: Settings) -> Mapping[str, Settings]:
        from tidemark_streaming.extras.lane import home

        names = home.running_lanes(settings)
        return {name: home.settings_of(settings, name) for name in names}

    def create_monitor(
        self, settings: Settings, pipelines: Iterable[Pipeline]
    ) -> Callable[[], Sequence[PipelineOverview]]:
        from tidemark_streaming.extras.lane.definition import Lane
        from tidemark_streaming.extras.lane.progress import LaneMonitor

        return LaneMonitor(settings, [p for p in pipelines if isinstance(p, Lane)]).read


EXTRA = _LaneExtra()
