"""`python -m tidemark_streaming.monitor`: the monitoring service that `tidemark up` starts.

A container runs this command by itself, to serve the live page and the metrics of a warehouse.
"""

import sys
from pathlib import Path

import uvicorn
from uvicorn.config import LOGGING_CONFIG

from tidemark.base.errors import TidemarkError
from tidemark.base.settings import Settings
from tidemark_streaming.base import logs
from tidemark_streaming.monitor.app import create_application
from tidemark_streaming.monitor.overview import Monitor

# Find packages in the working folder, as the commands and the orchestrator do.
sys.path.insert(0, str(Path.cwd()))
try:
    settings = Settings()
    structured = logs.begin_logging(settings, "watch")
    monitor = Monitor(settings)
except TidemarkError as error:
    sys.exit(str(error))
logs.log_event(
    "listening",
    address=str(settings.watch_address),
    port=settings.watch_port,
    database=settings.database,
)
uvicorn.run(
    create_application(settings, monitor),
    host=str(settings.watch_address),
    port=settings.watch_port,
    log_level="warning",
    # Otherwise uvicorn would log in its own format.
    log_config=None if structured else LOGGING_CONFIG,
    access_log=False,
)
