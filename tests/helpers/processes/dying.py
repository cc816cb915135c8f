"""Processes that publish an asset to its sink and are killed.

One parent process does the imports once, and each of them is its fork.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark import cloudpickle

from helpers.data.recorded import Played
from tidemark.define.transform import WindowedTransform

_PARENT = """
import os
import sys
from pathlib import Path
from pyspark import cloudpickle

from tidemark.base import thresholds
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.sink import writer

# So there is more than one transaction to be killed in.
thresholds.TRANSACTION_VERSIONS = 1
print("ready", flush=True)
for line in sys.stdin:
    file, step, location, database = line.split()
    child = os.fork()
    if child == 0:
        os.environ["TIDEMARK_FAIL_AT"] = step.strip("-")
        transform = cloudpickle.loads(Path(file).read_bytes())
        warehouse = Warehouse(None, location, database, registered=False)
        print(os.getpid(), flush=True)
        writer.SinkWriter(warehouse, transform).publish_changes()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@dataclass(frozen=True)
class Parent:
    """The process whose children publish, one at a time."""

    process: subprocess.Popen[str]
    folder: Path

    def begin(self, played: Played, asset: WindowedTransform, fail_at: str = "-") -> int:
        """Let a child publish the asset, one version per transaction. Return the child's ID.

        Args:
            fail_at: the fail point at which it is killed.
        """
        file = self.folder / "asset"
        file.write_bytes(cloudpickle.dumps(asset))
        stdin = self.process.stdin
        assert stdin is not None
        stdin.write(f"{file} {fail_at} {played.folder} {played.database}\n")
        stdin.flush()
        return int(self._line())

    def ended(self) -> int:
        """Wait for the child's exit. Return its exit code; a negative one is a signal."""
        return int(self._line())

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


@contextmanager
def parent(folder: Path) -> Iterator[Parent]:
    """Run the parent process for the duration of the block."""
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield Parent(process, folder)
        assert process.stdin is not None
        process.stdin.close()
