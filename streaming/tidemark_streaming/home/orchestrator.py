"""The commands of the orchestrator's processes, which `tidemark up` starts in addition to the
engine.

This module only builds commands and writes two files. It does not import the orchestrator, which is
in a higher layer and runs as a separate program.
"""

import sys
from pathlib import Path
from typing import Literal

import yaml

from tidemark.base import extras
from tidemark.base.errors import DefinitionError
from tidemark.base.files.private import make_folder
from tidemark.base.settings import Settings
from tidemark_streaming.dbt import marts
from tidemark_streaming.home import domains as packages

_MARTS = "marts"
"""The name of the code location of the marts."""

_Logs = Literal["text", "json"]
_LOGGING = {"text": [], "json": ["--log-format", "json"]}

ENGINE_POOL = "tidemark_engine"
"""The pool of all steps that put load on the engine."""

_INSTANCE = f"""\
# Tidemark wrote this file because there was none; you can edit it.
# Dagster's telemetry and its newsletter offer are off.
telemetry:
  enabled: false
nux:
  enabled: false
concurrency:
  pools:
    # How many runs may use the engine at the same time (pool `{ENGINE_POOL}`). The others wait in
    # the queue, without a process. Increase it on a machine with more than two cores.
    default_limit: 1
    granularity: run
  runs:
    # Runs that do not use the engine, such as the start of a stream, do not wait for it.
    max_concurrent_runs: 4
run_monitoring:
  # Fail runs whose process died or that are stuck. Streams are queries of the engine and not
  # runs, so these settings do not affect them.
  enabled: true
  start_timeout_seconds: 300
  max_runtime_seconds: 43200
  poll_interval_seconds: 60
sensors:
  use_threads: true
  num_workers: 4
schedules:
  use_threads: true
  num_workers: 2
retention:
  # Days for which Dagster keeps ticks. It keeps runs until you delete them.
  sensor:
    purge_after_days: {{skipped: 2, success: 30, failure: 30}}
  schedule:
    purge_after_days: 90
  auto_materialize:
    purge_after_days: {{skipped: 2, success: 30, failure: 30}}
"""


def catch_up(domain: str) -> str:
    """Return the name of the job that brings all assets of a domain up to date."""
    return f"{domain}_catch_up"


def prepare_folder(home: Path) -> dict[str, str]:
    """Create the orchestrator's folder in the home. Keep an existing `dagster.yaml`.

    Returns:
        The environment variables for the orchestrator's processes.
    """
    folder = (home / "dagster").resolve()
    make_folder(folder)
    instance = folder / "dagster.yaml"
    if not instance.exists():
        instance.write_text(_INSTANCE)
    # The processes load definitions in a folder of their choice, so the home must be absolute.
    return {"DAGSTER_HOME": str(folder), "TIDEMARK_HOME": str(home.resolve())}


def write_workspace(settings: Settings) -> Path:
    """Write the file that lists the code locations: each domain, and the marts.

    The code locations can import packages in the working folder.

    Returns:
        The path of the file.
    """
    locations = packages.find_code_locations(settings.domains)
    if marts.has_project(settings) and not without_marts(settings):
        if _MARTS in locations:
            raise DefinitionError(
                f"A domain can't have the name '{_MARTS}', which is the code location of the "
                "marts: rename its package."
            )
        locations[_MARTS] = "tidemark_assets.marts"
    code_locations = list[dict[str, dict[str, str]]]()
    for name, module in locations.items():
        python_module = {
            "module_name": module,
            "location_name": name,
            "working_directory": str(Path.cwd()),
        }
        code_locations.append({"python_module": python_module})
    file = settings.home / "dagster" / "workspace.yaml"
    make_folder(file.parent)
    file.write_text("# Written by `tidemark up`.\n" + yaml.safe_dump({"load_from": code_locations}))
    return file


def without_marts(settings: Settings) -> bool:
    """Return whether there are marts but no dbt to build them."""
    return marts.has_project(settings) and bool(extras.missing_packages("marts"))


def webserver_command(workspace: Path, port: int, logs: _Logs = "text") -> list[str]:
    """Return the command of the web interface, on loopback."""
    return [
        # `-P` keeps the working folder out of the module search path, as in Dagster's own programs.
        sys.executable,
        "-P",
        "-m",
        "tidemark_assets.webserver",
        "-w",
        str(workspace),
        "-h",
        "127.0.0.1",
        "-p",
        str(port),
        *_LOGGING[logs],
    ]


def daemon_command(workspace: Path, logs: _Logs = "text") -> list[str]:
    """Return the command of the daemon, which runs backfills, schedules, sensors and the queue."""
    return [*_program_command("dagster-daemon"), "run", "-w", str(workspace), *_LOGGING[logs]]


def migration_command() -> list[str]:
    """Return the command that creates the databases of runs, events and ticks, or upgrades them."""
    return [*_program_command("dagster"), "instance", "migrate"]


def _program_command(name: str) -> list[str]:
    # The program next to this Python, independent of PATH.
    return [str(Path(sys.executable).with_name(name))]
