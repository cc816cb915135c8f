"""The archive of the engine's classes: Java takes them from it as they are when a server starts,
instead of reading, checking and linking twenty thousand of them one by one (AppCDS).

It is made once, by `make archive`, of a server that has done what servers do first. It is good for
one build of Java and for the very jars that it was made of: both are in its name, and Java itself
checks them again. Without an archive, or with one that Java refuses, a server starts all the same,
only later.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tidemark.base.errors import EngineError
from tidemark.engine import cache
from tidemark.engine.alone import alone
from tidemark.engine.java import Java
from tidemark.engine.launch import pyspark_home

FOLDER = cache.own_folder("classes")
"""Where the archive of this environment is, as each has a PySpark of its own."""

# Java's own classes, of which not every Java brings an archive, and on top of them all others.
_BASE, _TOP = "java.jsa", "engine.jsa"
# Java ends on a file that is cut off or begins wrongly, instead of going on without it: so its size
# and its beginning are checked before, and Java checks the rest.
_SEAL = "seal"
_BEGINNING = 1 << 20


def options(java: Java, paths: Sequence[Path], folder: Path = FOLDER) -> list[str]:
    """What Java is told to start with the archive; nothing where there is none for it.

    Args:
        paths: the jars beside Spark's own.
    """
    archive = folder / _key(java, paths)
    if not _is_whole(archive):
        return []
    return [
        f"-XX:SharedArchiveFile={archive / _BASE}:{archive / _TOP}",
        # Java goes on without an archive that it can't use, and what it says of that helps nobody.
        "-Xshare:auto",
        "-Xlog:cds*=off",
        # What is damaged within would end Java later: checking it takes a tenth of a second.
        "-XX:+VerifySharedSpaces",
    ]


def make(
    java: Java, paths: Sequence[Path], train: Callable[[str], None], folder: Path = FOLDER
) -> bool:
    """Make the archive, unless it is there, and remove those of other jars and Javas; whether it
    was made. One process at a time: who comes second waits, and finds what the first made.

    Args:
        train: starts a server with the Java options that it is given, lets it do what servers do
            first, and ends it; Java writes the archive as it ends.

    Raises:
        EngineError: Java made none.
    """
    with alone(folder):
        if options(java, paths, folder):
            return False
        _make(java, folder, _key(java, paths), train)
    return True


def _make(java: Java, folder: Path, key: str, train: Callable[[str], None]) -> None:
    with tempfile.TemporaryDirectory(prefix=".make-", dir=folder) as scratch:
        made = Path(scratch) / key
        made.mkdir()
        base = f"-XX:SharedArchiveFile={made / _BASE}"
        done = subprocess.run([java.command, "-Xshare:dump", base], capture_output=True, text=True)
        if not (made / _BASE).is_file():
            said = (done.stdout + done.stderr).strip().splitlines() or ["it said nothing"]
            raise EngineError(f"'{java.command}' can't archive classes: {said[-1]}")
        train(f'"{base}" "-XX:ArchiveClassesAtExit={made / _TOP}"')
        if not (made / _TOP).is_file():
            raise EngineError(f"'{java.command}' wrote no archive of the engine's classes.")
        (made / _SEAL).write_text(_seal(made))
        for other in folder.iterdir():
            if other != Path(scratch):
                shutil.rmtree(other, ignore_errors=True)
        made.rename(folder / key)


def _is_whole(archive: Path) -> bool:
    try:
        return (archive / _SEAL).read_text() == _seal(archive)
    except OSError:
        return False


def _seal(archive: Path) -> str:
    found = hashlib.sha256()
    for name in (_BASE, _TOP):
        with (archive / name).open("rb") as stream:
            found.update(stream.read(_BEGINNING))
            found.update(str(stream.seek(0, os.SEEK_END)).encode())
    return found.hexdigest()


def _key(java: Java, paths: Sequence[Path]) -> str:
    """A name that changes with Java and with each jar, as far as Java looks at these."""
    jars = [*paths, *sorted((pyspark_home() / "jars").iterdir())]
    facts = [(jar, jar.stat()) for jar in jars]
    lines = [java.command, java.told]
    lines += [f"{jar} {stat.st_size} {stat.st_mtime_ns}" for jar, stat in facts]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
