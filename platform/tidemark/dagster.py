"""Tidemark in a Dagster project: `from tidemark.dagster import build_definitions`."""

from tidemark_assets.alarms import failing_checks
from tidemark_assets.build import DagsterOptions
from tidemark_assets.component import WindowedDomains
from tidemark_assets.definitions import build_definitions, domain_definitions
from tidemark_assets.parameter import FINAL, WINDOWS, Reader, windows_reader

__all__ = [
    "FINAL",
    "WINDOWS",
    "DagsterOptions",
    "Reader",
    "WindowedDomains",
    "build_definitions",
    "domain_definitions",
    "failing_checks",
    "windows_reader",
]
