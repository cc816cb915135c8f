"""Send the project's code to an engine elsewhere, so that its Python need not have it.

A session uploads the code once, before it runs anything. A Python worker keeps the modules that it
has imported, and Spark has separate workers for each session with uploaded files. So each version
of the code needs a session of its own.
"""

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tidemark.base.sent_code import SentCode
from tidemark.base.settings import Settings
from tidemark.engine.code_zip import zip_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HAS_CODE = "spark.tidemark.hasCode"
"""A setting of each engine that Tidemark has started. Such an engine imports its project from the
folder in which it was started, and its tasks can't read uploaded files."""


def send_code(spark: "SparkSession", settings: Settings) -> None:
    """Let the workers of a new session import the project's code, if the engine lacks it."""
    code = find_code(spark, settings)
    if code is not None:
        upload_code(spark, code)


def find_code(spark: "SparkSession", settings: Settings) -> SentCode | None:
    """Return the code that an engine needs from this process; None if it has code of its own."""
    if not settings.is_remote or spark.conf.get(HAS_CODE, "false") == "true":
        return None
    return _zip_once(settings.domains)


@cache
def _zip_once(domains: tuple[str, ...]) -> SentCode:
    """Return the same code for all sessions of this process, which has imported that version."""
    return zip_code(domains)


def upload_code(spark: "SparkSession", code: SentCode) -> None:
    """Let the workers of a session import the code. It must be the session's first."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / code.name
        file.write_bytes(code.content)
        try:
            spark.addArtifacts(str(file), pyfile=True)
        finally:
            # Spark's client puts the file into the module search path of this process too.
            if str(file) in sys.path:
                sys.path.remove(str(file))


def carry_code(code: SentCode, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a stream that imports the code, and then calls the given function.

    The files that a session uploads reach the workers of tasks, but not the Python of the server,
    which runs the function of a stream.
    """
    from pyspark import cloudpickle

    name, content = code
    pickled = cloudpickle.dumps(function)
    imported: list[Callable[..., Any]] = []

    # A nested function is sent as it is. It must not use this module, which the server may lack.
    def run_with_code(*arguments: object) -> Any:  # noqa: ANN401 (the result of any function)
        if not imported:
            import os
            import pickle
            import sys

            # A file in memory: another one would remain when the process is killed.
            file = os.memfd_create(name)
            with os.fdopen(file, "wb", closefd=False) as stream:
                stream.write(content)
            sys.path.insert(0, f"/proc/self/fd/{file}")

            from tidemark.base import sent_code

            sent_code.receive_code(name, content)
            imported.append(pickle.loads(pickled))
        return imported[0](*arguments)

    return run_with_code
