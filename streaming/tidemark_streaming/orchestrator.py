"""The orchestrator's processes, as commands: what `tidemark up` starts beside the engine.

Only strings and one file: nothing here imports the orchestrator, which lives a layer above and is
started as a program of its own.
"""

import sys
from pathlib import Path

ENGINE_POOL = "tidemark_engine"
"""The pool of all steps that put load on the engine."""

INSTANCE = f"""\
# Written by Tidemark where there was none; edit it freely.
# Nothing calls home, and no newsletter is offered.
telemetry:
  enabled: false
nux:
  enabled: false
concurrency:
  pools:
    # How many runs may load the engine at once (pool `{ENGINE_POOL}`); the others wait in the
    # queue, without a process. Raise it on a machine with more than two cores.
    default_limit: 1
    granularity: run
"""


def prepare(home: Path) -> dict[str, str]:
    """Make the orchestrator's folder in Tidemark's `home`; the variables its processes need.

    A `dagster.yaml` that is already there stays as it is.
    """
    folder = (home / "dagster").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    instance = folder / "dagster.yaml"
    if not instance.exists():
        instance.write_text(INSTANCE)
    # The processes load definitions in a folder of their choosing, so the home must be absolute.
    return {"DAGSTER_HOME": str(folder), "TIDEMARK_HOME": str(home.resolve())}


def webserver(workspace: Path, port: int) -> list[str]:
    """The command of the web interface, on loopback."""
    return [
        *_program("dagster-webserver"),
        "-w",
        str(workspace),
        "-h",
        "127.0.0.1",
        "-p",
        str(port),
    ]


def daemon(workspace: Path) -> list[str]:
    """The command of the daemon, which runs backfills, schedules, sensors and the queue."""
    return [*_program("dagster-daemon"), "run", "-w", str(workspace)]


def _program(name: str) -> list[str]:
    # Beside this Python, whatever PATH says.
    return [str(Path(sys.executable).with_name(name))]
