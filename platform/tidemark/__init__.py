"""Windowed aggregations over event logs.

Events are ingested in numbered groups, the arrivals. A run processes a range of arrivals; a batch
run is a run whose range has an end.

`import tidemark as tm` gives the names that definitions need: `tm.Source`, `tm.windowed_asset`,
`tm.Tumbling`, `tm.agg`. They are listed in `tidemark.api`, which is loaded at their first use:
programs that need none of them, such as an engine's worker, then start faster.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tidemark.api import *
else:

    def __getattr__(name: str) -> object:
        if name == "__all__" or not name.startswith("_"):
            # `from tidemark import engine` asks for the name first. It must not load `api`.
            if find_spec(f"{__name__}.{name}") is not None:
                return import_module(f"{__name__}.{name}")
            api = import_module(f"{__name__}.api")
            if name == "__all__" or name in api.__all__:
                return getattr(api, name)
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
