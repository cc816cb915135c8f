"""`python -m tidemark_streaming.watch`: what `tidemark up` starts to watch a home."""

import sys
from pathlib import Path

import uvicorn
from uvicorn.config import LOGGING_CONFIG

from tidemark.base.errors import TidemarkError
from tidemark.base.settings import Settings
from tidemark_streaming import logs
from tidemark_streaming.watch.app import application
from tidemark_streaming.watch.sight import Watcher

# Packages in the working folder are found, as commands and the orchestrator find them.
sys.path.insert(0, str(Path.cwd()))
try:
    settings = Settings()
    structured = logs.begin(settings, "watch")
    watcher = Watcher(settings)
except TidemarkError as error:
    sys.exit(str(error))
logs.tell("listening", port=settings.watch_port, database=settings.database)
uvicorn.run(
    application(settings, watcher),
    host="127.0.0.1",
    port=settings.watch_port,
    log_level="warning",
    # Otherwise it would log in a way of its own.
    log_config=None if structured else LOGGING_CONFIG,
    access_log=False,
)
