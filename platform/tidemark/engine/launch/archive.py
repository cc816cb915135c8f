"""Create the AppCDS archive of the engine's classes, so that a server starts faster.

With the archive, Java maps twenty thousand classes into memory instead of reading, verifying and
linking each of them.

`make_archive` creates the archive once, from a server that has run a typical first workload. The
archive is valid for one build of Java and for exactly the jars from which it was created. The name
of its folder is a hash of both, and Java verifies both again. Without a valid archive, a server
also starts, but more slowly.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from tidemark.base.errors import EngineError
from tidemark.engine.launch import cache
from tidemark.engine.launch.cache import lock_folder
from tidemark.engine.launch.command import pyspark_home
from tidemark.engine.launch.java import Java
from tidemark.engine.process import summarize_output

FOLDER = cache.own_folder("classes")
"""The folder of this Python environment's archive; each environment has its own PySpark."""

# Not every Java includes an archive of its own classes, so Tidemark creates one (base). The archive
# of all other classes (top) builds on it.
_BASE = "java.jsa"
_TOP = "engine.jsa"
# If a file of the archive is truncated or has a damaged header, Java exits instead of ignoring the
# archive. The seal therefore covers the size and the beginning of each file; Java checks the rest.
_SEAL = "seal"
_BEGINNING = 1 << 20
_ADVICE = (
    "Set JAVA_HOME to another Java 17 or 21, or engine_archive (TIDEMARK_ENGINE_ARCHIVE) to false."
)


def archive_options(java: Java, paths: Sequence[Path], folder: Path = FOLDER) -> list[str]:
    """Return the Java options that use the archive, or an empty list without a valid archive.

    Args:
        paths: the jars in addition to Spark's own.
    """
    archive = folder / _archive_name(java, paths)
    if not _is_whole(archive):
        return []
    return [
        f"-XX:SharedArchiveFile={archive / _BASE}:{archive / _TOP}",
        # If Java can't use the archive, it continues without it. Its messages do not help a user.
        "-Xshare:auto",
        "-Xlog:cds*=off",
        # A damaged archive would crash Java later; the check takes 0.1 s.
        "-XX:+VerifySharedSpaces",
    ]


def make_archive(
    java: Java, paths: Sequence[Path], run_workload: Callable[[str], None], folder: Path = FOLDER
) -> bool:
    """Create the archive, and delete the archives for other jars and other Javas.

    Return False if the archive exists already. Only one process at a time creates the archive: a
    second process waits, and then finds it.

    Args:
        run_workload: starts a server with the given Java options, runs a typical first workload
            on it, and stops it. Java writes the archive when it exits.
    """
    with lock_folder(folder):
        if archive_options(java, paths, folder):
            return False
        archive = folder / _archive_name(java, paths)
        try:
            _create_archive(java, archive, run_workload)
        except BaseException:
            shutil.rmtree(archive, ignore_errors=True)
            raise
        for outdated in folder.iterdir():
            if outdated != archive:
                shutil.rmtree(outdated, ignore_errors=True)
    return True


def _create_archive(java: Java, archive: Path, run_workload: Callable[[str], None]) -> None:
    # Create the archive in its final folder: Java 21 refuses a top archive if the path of its base
    # has changed.
    shutil.rmtree(archive, ignore_errors=True)
    archive.mkdir()
    base = f"-XX:SharedArchiveFile={archive / _BASE}"
    dump = subprocess.run([java.command, "-Xshare:dump", base], capture_output=True, text=True)
    if not (archive / _BASE).is_file():
        reason = summarize_output((dump.stdout + dump.stderr).splitlines())
        raise EngineError(
            f"'{java.command}' can't create an archive of its classes: {reason}. {_ADVICE}"
        )
    run_workload(f'"{base}" "-XX:ArchiveClassesAtExit={archive / _TOP}"')
    if not (archive / _TOP).is_file():
        raise EngineError(
            f"'{java.command}' did not create an archive of the engine's classes. {_ADVICE}"
        )
    # Without the seal, no server uses the archive.
    (archive / _SEAL).write_text(_compute_seal(archive))


def _is_whole(archive: Path) -> bool:
    try:
        return (archive / _SEAL).read_text() == _compute_seal(archive)
    except OSError:
        return False


def _compute_seal(archive: Path) -> str:
    digest = hashlib.sha256()
    for name in (_BASE, _TOP):
        with (archive / name).open("rb") as stream:
            digest.update(stream.read(_BEGINNING))
            digest.update(str(stream.seek(0, os.SEEK_END)).encode())
    return digest.hexdigest()


def _archive_name(java: Java, paths: Sequence[Path]) -> str:
    """Return a name that identifies the Java and the jars, by the attributes that Java checks."""
    jars = list(paths)
    jars += sorted((pyspark_home() / "jars").iterdir())
    lines = [java.command, java.version_output]
    for jar in jars:
        status = jar.stat()
        lines.append(f"{jar} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
