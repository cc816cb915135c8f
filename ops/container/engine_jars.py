"""Fetch the jars of the engine's image into Spark's folder, each verified by its hash.

These are the jars of every engine of Tidemark, and Hadoop's client for an object store with the
protocol of S3, of the version of Hadoop that Spark contains.
"""

from pathlib import Path

import pyspark

from tidemark.base.settings import Settings
from tidemark.engine.launch.jars import JARS, Jar, ensure_jars
from tidemark.engine.launch.java import find_java

OBJECT_STORE = (
    Jar(
        "org.apache.hadoop",
        "hadoop-aws",
        "3.5.0",
        "66bd9eefb938b1a1657487324b63c13df2d8b17164a1dd24e0ef37b905bc5baa",
    ),
    Jar(
        "software.amazon.awssdk",
        "bundle",
        "2.35.4",
        "db4b55f24ad1b4e70f17eb1717a4de76a8dadc5a27d764be7c44ff67b2c1c677",
    ),
    Jar(
        "software.amazon.s3.analyticsaccelerator",
        "analyticsaccelerator-s3",
        "1.3.1",
        "4959a9747cbb479c73c3ffbcd479bee5b014f8b2880994585a8693fb9d24675e",
    ),
    Jar(
        "org.wildfly.openssl",
        "wildfly-openssl",
        "2.2.5.Final",
        "71fb7932f99a727edb23c5a2cb8c6855ac7196fad41aa0669b3998e277165154",
    ),
)


def main() -> None:
    """Fetch the jars that are missing."""
    folder = Path(pyspark.__path__[0]) / "jars"
    ensure_jars(find_java(), folder, (*JARS, *OBJECT_STORE), Settings().maven_repository)


if __name__ == "__main__":
    main()
