"""The live view of a stream on real Delta tables, without an engine."""

import shutil
from pathlib import Path

from helpers.data.support import PER_MINUTE
from helpers.data.tables import arrive, ran
from tidemark.base.settings import Settings
from tidemark_streaming.cli.processing.live import View


def test_each_run_is_new_once_even_after_the_asset_is_recreated(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    name = PER_MINUTE.name
    view = View(settings, PER_MINUTE)
    assert view.take_new_runs() == []
    arrive(settings, "readings", 0, 9)
    for commit_number in range(3):
        ran(settings, name, commit_number, through=commit_number, watermark=0)
    assert [run["commit_number"] for run in view.take_new_runs()] == [0, 1, 2]
    assert view.take_new_runs() == []
    ran(settings, name, 3, through=3, watermark=0)
    assert [run["commit_number"] for run in view.take_new_runs()] == [3]
    shutil.rmtree(Path(settings.warehouse) / settings.database / PER_MINUTE.state_table)
    assert view.take_new_runs() == []
    ran(settings, name, 0, through=9, watermark=0)
    assert [run["commit_number"] for run in view.take_new_runs()] == [0]
    assert view.take_new_runs() == []
