"""The file server of Spark's driver, closed: what it serves, it serves to everybody.

The driver's port gives out files without asking for a secret, also if `spark.authenticate` is set,
and takes the way out of the folder that it serves: `/artifacts/../../etc/passwd`. So any user of
this machine could read every file of the engine's user. No setting of Spark 4.2 closes that. Local
tasks need none of these files: they only ask for classes that are not there.

Spark's class is taken as it is, with one byte changed: a file in a folder is looked for under the
folder's own name instead of the name that was asked for, and so is never found.
"""

import io
import zipfile
from pathlib import Path

from tidemark.base.errors import EngineError
from tidemark.engine import cache
from tidemark.engine.alone import alone

FOLDER = cache.folder("closed")

_CLASS = "org/apache/spark/rpc/netty/NettyStreamManager.class"
# `new File(dir, fname)` in the bytes of `openStream`, where `fname` is the local variable 10, and
# the first part of the address, by which the folder was found, is 9.
_ASKED, _FIXED = b"\x59\x19\x0d\x19\x0a\xb7", b"\x59\x19\x0d\x19\x09\xb7"


def closed_jar(spark: Path, folder: Path = FOLDER) -> Path:
    """Return a jar with the closed class, which must come before Spark's own; make it if need be.

    Args:
        spark: the folder of Spark's jars.

    Raises:
        EngineError: this Spark has another class, or the folder can't be written.
    """
    core = next(spark.glob("spark-core_*.jar"))
    content = _jar(core)
    jar = folder / f"closed-{core.name}"
    if not jar.is_file() or jar.read_bytes() != content:
        with alone(folder):
            scratch = jar.with_suffix(".part")
            scratch.write_bytes(content)
            scratch.replace(jar)
    return jar


def _jar(core: Path) -> bytes:
    with zipfile.ZipFile(core) as jar:
        code = jar.read(_CLASS)
    if code.count(_ASKED) != 1:
        raise EngineError(
            f"The file server in {core} is not the one that Tidemark knows how to close, and would "
            "let every user of this machine read your files: install the version of pyspark that "
            "Tidemark asks for."
        )
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as jar:
        # Of no date: the same bytes each time.
        jar.writestr(zipfile.ZipInfo(_CLASS), code.replace(_ASKED, _FIXED))
    return made.getvalue()
