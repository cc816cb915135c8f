"""Tidemark in a Dagster project: `from tidemark.dagster import dagster_asset`."""

from tidemark_assets.alarms import failing_checks
from tidemark_assets.asset import TidemarkAsset, dagster_asset
from tidemark_assets.asset_component import EventLogs, WindowedAsset
from tidemark_assets.build import DagsterOptions
from tidemark_assets.component import WindowedDomains
from tidemark_assets.definitions import build_definitions, domain_definitions
from tidemark_assets.parameter import FINAL, WINDOWS, Reader, windows_reader

__all__ = [
    "FINAL",
    "WINDOWS",
    "DagsterOptions",
    "EventLogs",
    "Reader",
    "TidemarkAsset",
    "WindowedAsset",
    "WindowedDomains",
    "build_definitions",
    "dagster_asset",
    "domain_definitions",
    "failing_checks",
    "windows_reader",
]
