"""The Java that runs the engine."""

import os
import re
import subprocess
from collections.abc import Mapping

from tidemark.base.errors import EngineError

SUPPORTED = (17, 21)


def find_java(environ: Mapping[str, str] = os.environ) -> str:
    """The command of a Java that Spark runs on: that of JAVA_HOME when set, else the PATH's."""
    home = environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else "java"
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, env=dict(environ)
        ).stderr
    except OSError:
        told = ""
    version = re.search(r'version "(?:1\.)?(\d+)', told)
    if version is None:
        raise EngineError(
            f"Tidemark needs Java 17 or 21, and '{java}' does not run: "
            "install one, or set JAVA_HOME to it."
        )
    if int(version[1]) not in SUPPORTED:
        raise EngineError(
            f"Tidemark needs Java 17 or 21, and '{java}' is Java {version[1]}: "
            "install one, or set JAVA_HOME to it."
        )
    return java
