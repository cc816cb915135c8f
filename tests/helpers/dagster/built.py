"""A stand-in for dbt that builds nothing but writes its result files."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidemark.store.warehouse import Warehouse

Runs = Callable[[Sequence[str], Mapping[str, str], object], str]


def leaving(*results: Mapping[str, Any]) -> Runs:
    """Return a stand-in for a dbt run with these results, of a project without models."""

    def run(arguments: Sequence[str], variables: Mapping[str, str], is_lost: object = None) -> str:
        target = Path(variables["DBT_TARGET_PATH"])
        if arguments[0] == "parse":
            (target / "manifest.json").write_text(json.dumps({"nodes": {}, "sources": {}}))
            (target / "partial_parse.msgpack").touch()
        else:
            (target / "run_results.json").write_text(json.dumps({"results": [*results]}))
        return ""

    return run


def unregistered(session: Any = None) -> Warehouse:  # noqa: ANN401 (a build that does not fail needs none)
    """Return a warehouse whose tables are not in the catalog, for builds of nothing."""
    return Warehouse(session, "/none", registered=False)
