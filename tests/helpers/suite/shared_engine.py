"""One engine for all workers of a session: it starts once, and Java compiles its code once.

Each worker has a home of its own for everything else, such as services and tables.
"""

import shutil
from pathlib import Path

from tidemark import engine
from tidemark.base.settings import Settings
from tidemark.engine.launch.cache import lock_folder
from tidemark.engine.server import managed_of

_COPIED = ("token", "pids/engine.json")
_LINKED = ("scratch", "metastore", "logs/engine.log")
"""The files of the engine that tests read or search."""


def start_or_join(settings: Settings, home: Path) -> Settings:
    """Return the settings of a home that uses the engine of all workers. The first one starts it.

    Args:
        settings: the engine's settings, with the same home in each worker.
        home: the worker's own home.
    """
    with lock_folder(settings.home / "workers"):
        record = managed_of(settings).find_running()
        port = settings.engine_port if record is None else record.port
        settings = settings.model_copy(update={"engine_port": port})
        engine.ensure_engine(settings)
    for name in (*_COPIED, *_LINKED):
        (home / name).parent.mkdir(mode=0o700, exist_ok=True)
    for name in _COPIED:
        shutil.copy2(settings.home / name, home / name)
    for name in _LINKED:
        (home / name).symlink_to(settings.home / name)
    places = {"home": home, "warehouse": f"{home}/warehouse", "landing": f"{home}/landing"}
    return settings.model_copy(update=places)
