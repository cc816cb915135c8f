"""Run dbt in a process that exits when the process that started it has exited.

A process that builds marts holds their locks, which are free again when it is killed. Its dbt must
not continue after that. This module is the main module of dbt's process, so it imports no other
module of Tidemark.
"""

import os
import sys
import threading
import time
from collections.abc import Sequence

MODULE = "tidemark_streaming.dbt.dbt_process"
"""The name of this module, by which dbt's processes can be recognized."""

_POLL_SECONDS = 0.5
_FAILED = 1


def dbt_flags() -> list[str]:
    """Return the arguments of Python that run dbt as a child of this process, without dbt's own."""
    # With -P, Python imports nothing from the working folder, which may be the dbt project.
    return ["-P", "-m", MODULE, str(os.getpid())]


def dbt_command(arguments: Sequence[str]) -> list[str]:
    """Return the command that runs dbt as a child of this process.

    Args:
        arguments: the arguments of dbt.
    """
    command = [sys.executable]
    command += dbt_flags()
    command += arguments
    return command


def _exit_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os._exit(_FAILED)


def _run() -> None:
    parent = int(sys.argv.pop(1))
    watch = threading.Thread(target=_exit_with_parent, args=(parent,), name="parent", daemon=True)
    watch.start()

    # Importing dbt takes a second, in which the parent may be killed.
    from dbt.cli.main import cli

    cli(prog_name="dbt")


if __name__ == "__main__":
    _run()
