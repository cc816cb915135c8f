"""Close the file server of Spark's driver, which would serve files to every local user.

The driver's port serves files without requiring a secret, even if `spark.authenticate` is set. The
server also accepts paths that lead out of the served folder: `/artifacts/../../etc/passwd`.
Therefore, every user of this machine could read all files of the engine's user. No setting of Spark
4.2 prevents that. Local tasks need none of these files: they only request classes that do not
exist.

The fix is a copy of Spark's class with one byte changed. The fixed class looks up each file of a
served folder under the folder's own name instead of the requested name, and so never finds a file.
"""

import io
import zipfile
from pathlib import Path

from tidemark.base.errors import EngineError
from tidemark.engine.launch import cache
from tidemark.engine.launch.cache import lock_folder

_FOLDER = cache.cache_folder("closed")

_CLASS = "org/apache/spark/rpc/netty/NettyStreamManager.class"
# The bytecode of `new File(dir, fname)` in `openStream`. Local variable 10 is `fname`. Local
# variable 9, which replaces it, is the first part of the path, by which `dir` was found.
_ORIGINAL = b"\x59\x19\x0d\x19\x0a\xb7"
_FIXED = b"\x59\x19\x0d\x19\x09\xb7"


def closed_jar(spark: Path, folder: Path = _FOLDER) -> Path:
    """Return the path of a jar that contains only the fixed class `NettyStreamManager`.

    Create the jar if it is missing or different. The jar must precede Spark's own jars in the class
    path.

    Raises:
        EngineError: Spark's class is not the one that the fix was made for.
    """
    core = next(spark.glob("spark-core_*.jar"))
    content = _build_jar(core)
    jar = folder / f"closed-{core.name}"
    if not jar.is_file() or jar.read_bytes() != content:
        with lock_folder(folder):
            scratch = jar.with_suffix(".part")
            scratch.write_bytes(content)
            scratch.replace(jar)
    return jar


def _build_jar(core: Path) -> bytes:
    with zipfile.ZipFile(core) as jar:
        code = jar.read(_CLASS)
    if code.count(_ORIGINAL) != 1:
        raise EngineError(
            f"Tidemark can't disable the file server in {core}, because it is of an unknown "
            "version. Through this server, every user of this machine could read your files: "
            "install the version of pyspark that Tidemark requires."
        )
    jar_bytes = io.BytesIO()
    with zipfile.ZipFile(jar_bytes, "w") as jar:
        # Without a date, the bytes are the same each time.
        jar.writestr(zipfile.ZipInfo(_CLASS), code.replace(_ORIGINAL, _FIXED))
    return jar_bytes.getvalue()
