"""Spark's file system of an object store: its jars (690 MB), and its settings."""

import os
import runpy
from pathlib import Path

from helpers.suite.pages import ROOT
from tidemark.base.settings import Settings
from tidemark.engine.launch import cache, jars
from tidemark.engine.launch.java import find_java

FOLDER = cache.cache_folder("object_store")
"""The folder of the jars: one copy for all tests."""


def fetch_store_jars() -> list[Path]:
    """Return the jars that the engine's image has too, after fetching those that are missing."""
    pinned = runpy.run_path(str(ROOT / "ops/container/engine_jars.py"))["OBJECT_STORE"]
    return jars.ensure_jars(find_java(), FOLDER, pinned, Settings().maven_repository)


def store_conf() -> dict[str, str]:
    """Return the settings of Spark for the object store that the environment names."""
    return {
        "spark.hadoop.fs.s3a.endpoint": os.environ["AWS_ENDPOINT_URL"],
        "spark.hadoop.fs.s3a.endpoint.region": os.environ.get("AWS_REGION", "eu-west-1"),
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }


def engine_settings(store_jars: list[Path]) -> dict[str, str]:
    """Return the environment variables of a machine whose own engine uses the object store."""
    conf = ";".join(f"{name}={value}" for name, value in store_conf().items())
    return {"TIDEMARK_ENGINE_JARS": ",".join(map(str, store_jars)), "TIDEMARK_ENGINE_CONF": conf}
