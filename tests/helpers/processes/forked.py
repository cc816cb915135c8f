"""Scripts that run in separate processes and may be killed there.

One parent process does the imports once, and each script runs in its fork. A fork takes a hundredth
of the time of the imports.
"""

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

_PARENT = """
import json
import os
import sys
import threading
import traceback

import pyspark.sql.connect.session
from helpers.data import support
from tidemark.run.change import rebuild, replay; from tidemark.run import runner
from tidemark_streaming.ingest import ingest

# A fork has one thread: what another one had locked would be so for ever.
assert threading.active_count() == 1
print("ready", flush=True)
for line in sys.stdin:
    script, folder, variables, arguments = json.loads(line)
    child = os.fork()
    if child == 0:
        # What is said goes where errors go: the parent speaks by its output.
        os.dup2(2, 1)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(variables)
        sys.argv = ["-c", *arguments]
        code = 1
        try:
            exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def run(script: str, arguments: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run a script. Return its exit code; a negative one is the signal that killed it.

    Args:
        variables: its environment variables.
    """
    parent = _parent()
    assert parent.stdin is not None
    assert parent.stdout is not None
    told = script, str(Path.cwd()), dict(variables), [*arguments]
    parent.stdin.write(f"{json.dumps(told)}\n")
    parent.stdin.flush()
    return int(parent.stdout.readline())


@cache
def _parent() -> "subprocess.Popen[str]":
    """Return the parent process, which runs as long as the tests of this process."""
    process = subprocess.Popen(
        [sys.executable, "-c", _PARENT],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    atexit.register(process.communicate)
    return process
