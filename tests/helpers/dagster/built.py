"""dbt that builds nothing, and leaves what it does of a build."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Runs = Callable[[Sequence[str], Mapping[str, str]], str]


def leaving(*results: Mapping[str, Any]) -> Runs:
    """What stands for a run of dbt that gave these results, of a project without models."""

    def run(arguments: Sequence[str], variables: Mapping[str, str]) -> str:
        target = Path(variables["DBT_TARGET_PATH"])
        if arguments[0] == "parse":
            (target / "manifest.json").write_text(json.dumps({"nodes": {}, "sources": {}}))
            (target / "partial_parse.msgpack").touch()
        else:
            (target / "run_results.json").write_text(json.dumps({"results": [*results]}))
        return ""

    return run
