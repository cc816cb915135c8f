"""`python -m tidemark_assets.webserver`: `dagster-webserver` with a guard of its origin.

It takes the options of Dagster's own command, which would otherwise respond to every web page in a
browser.
"""

from typing import Any

from dagster_webserver import cli
from dagster_webserver.webserver import DagsterWebserver
from starlette.middleware import Middleware

from tidemark.base.settings import Settings
from tidemark_streaming.base.origin_guard import OriginGuard


def main() -> None:
    """Serve Dagster's web interface until a signal ends the process."""
    hosts, unguarded = Settings().allowed_hosts, DagsterWebserver.build_middleware

    def build_middleware(self: DagsterWebserver[Any, Any]) -> list[Middleware]:
        return [Middleware(OriginGuard, hosts=hosts), *unguarded(self)]

    DagsterWebserver.build_middleware = build_middleware
    cli.main()


if __name__ == "__main__":
    main()
