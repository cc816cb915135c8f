"""Fetch the jars that the engine needs in addition to PySpark's own, verified by checksum.

PySpark includes Ivy, so only Java is needed to fetch the jars. Each jar is specified with its
version and its SHA-256, and is fetched without its dependencies, because Spark includes them.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from tidemark.base.errors import EngineError, TidemarkError
from tidemark.base.settings import Settings
from tidemark.engine.launch import cache, file_server
from tidemark.engine.launch.cache import lock_folder
from tidemark.engine.launch.java import Java, find_java

FOLDER = cache.cache_folder("jars")
"""The folder of the jars: one copy for all homes and working directories."""


@dataclass(frozen=True)
class Jar:
    """One file of a Maven artifact, identified by its checksum."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


JARS = (
    Jar(
        "io.delta",
        "delta-spark_4.2_2.13",
        "4.4.0",
        "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    ),
    Jar(
        "io.delta",
        "delta-storage",
        "4.4.0",
        "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    ),
    # Hadoop's local file system starts a `chmod` process for each file; this jar uses Java instead.
    Jar(
        "com.globalmentor",
        "hadoop-bare-naked-local-fs",
        "0.1.0",
        "e0cc30fb0531eb0b59468dc0abf5b257533d2365b5e9f45e795edd707aa78c62",
    ),
    # Spark's Kafka connector. A session can't add the connector, because its settings are
    # registered once for the process. The connector's token provider is from Spark 4.0, because no
    # later version is published completely. The token provider only handles Hadoop's delegation
    # tokens, which Tidemark does not use.
    Jar(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        "4.2.0",
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    ),
    Jar(
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.0.0",
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-clients",
        "3.9.2",
        "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    ),
    Jar(
        "org.apache.commons",
        "commons-pool2",
        "2.13.1",
        "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
    ),
)

_ATTEMPTS = 3

# `ibiblio` is Ivy's resolver for Maven Central; `m2compatible` is Maven's folder layout.
_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir="${ivy.cache.dir}"/>
  <resolvers><ibiblio name="central" m2compatible="true" %s/></resolvers>
</ivysettings>
"""


def ensure_jars(
    java: Java,
    folder: Path = FOLDER,
    jars: Sequence[Jar] = JARS,
    repository: str | None = None,
) -> list[Path]:
    """Return the paths of `jars` in `folder`, after fetching each jar that is missing or damaged.

    A jar appears in the folder only after its checksum was verified.

    Args:
        repository: the address of the Maven repository to fetch from; None for Maven Central.

    Raises:
        EngineError: a jar can't be fetched, or its checksum is wrong.
    """
    if _list_missing(folder, jars):
        with lock_folder(folder):
            if missing := _list_missing(folder, jars):
                _add_jars(java, folder, missing, repository)
    return [folder / jar.file_name for jar in jars]


def class_path(java: Java, repository: str | None = None) -> list[Path]:
    """Return the jars that precede Spark's own in the engine's class path, in order.

    Fetch or create the jars that are missing. `repository` is as for `ensure_jars`.
    """
    import pyspark

    closed = file_server.closed_jar(Path(pyspark.__file__).parent / "jars")
    return [closed, *ensure_jars(java, repository=repository)]


def check_extra_jars(paths: Sequence[Path]) -> list[Path]:
    """Return the additional jars that the user specified.

    Raises:
        EngineError: a path does not exist, or is not a jar file.
    """
    for path in paths:
        if not path.is_file() or not zipfile.is_zipfile(path):
            raise EngineError(
                f"Setting engine_jars (TIDEMARK_ENGINE_JARS) names '{path}', which "
                f"{'is not a jar file' if path.exists() else 'does not exist'}: specify jar files "
                "on this machine."
            )
    return list(paths)


def main() -> None:
    """Run the last step of the setup: report which Java the engine uses, and provide its jars."""
    try:
        java = find_java()
        sys.stderr.write(f"setup: the engine uses Java {java.full_version} of {java.origin}\n")
        class_path(java, Settings().maven_repository)
    except TidemarkError as error:
        sys.exit(f"setup: {error}")


def _list_missing(folder: Path, jars: Sequence[Jar]) -> list[Jar]:
    return [jar for jar in jars if not _is_whole(folder / jar.file_name, jar)]


def _add_jars(java: Java, folder: Path, jars: Sequence[Jar], repository: str | None) -> None:
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch:
        _fetch_jars(java, jars, Path(scratch), repository)
        for jar in jars:
            fetched = Path(scratch) / jar.file_name
            if not _is_whole(fetched, jar):
                raise EngineError(
                    f"The fetched {jar.file_name} is not the file that Tidemark was tested with "
                    "(its "
                    f"SHA-256 is {_compute_sha256(fetched)}, expected {jar.sha256}), so it was "
                    "rejected: "
                    "check the Maven repository or mirror that it came from."
                )
        for jar in jars:
            (Path(scratch) / jar.file_name).replace(folder / jar.file_name)


def _fetch_jars(java: Java, jars: Sequence[Jar], folder: Path, repository: str | None) -> None:
    settings = folder / "ivysettings.xml"
    module = folder / "ivy.xml"
    settings.write_text(_SETTINGS % (f"root={quoteattr(repository)}" if repository else ""))
    dependencies = "".join(
        f'<dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}" '
        'transitive="false"/>'
        for jar in jars
    )
    module.write_text(
        '<ivy-module version="2.0"><info organisation="tidemark" module="engine"/>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
    command = [
        java.command,
        f"-Divy.cache.dir={folder / 'cache'}",
        "-jar",
        str(_find_ivy()),
        "-settings",
        str(settings),
        "-ivy",
        str(module),
        "-confs",
        "default",
        # Some jars declare the type `bundle` because they are OSGi bundles too.
        "-types",
        "jar",
        "bundle",
        "-retrieve",
        str(folder / "[artifact]-[revision].[ext]"),
    ]
    absent = [jar.file_name for jar in jars]
    output = ""
    for _ in range(_ATTEMPTS):
        # Fetched jars stay in Ivy's cache, so another attempt requests only the missing jars.
        retrieval = subprocess.run(command, capture_output=True, text=True, check=False)
        absent = [jar.file_name for jar in jars if not (folder / jar.file_name).exists()]
        if not absent:
            return
        output = retrieval.stdout + retrieval.stderr
    lines = output.strip().splitlines()
    reasons = [line.strip() for line in lines if "ERROR" in line or "exception" in line.lower()]
    raise EngineError(
        f"Could not fetch {', '.join(absent)} from {repository or 'Maven Central'} "
        f"({(reasons or lines or ['no output'])[-1]}): check the network, or set "
        "maven_repository (TIDEMARK_MAVEN_REPOSITORY) to a mirror that has them."
    )


def _find_ivy() -> Path:
    import pyspark

    return next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))


def _is_whole(file: Path, jar: Jar) -> bool:
    return file.is_file() and _compute_sha256(file) == jar.sha256


def _compute_sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
