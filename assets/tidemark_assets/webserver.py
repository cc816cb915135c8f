"""`python -m tidemark_assets.webserver`: `dagster-webserver`, guarded by an `OriginGuard`.

This command takes the same options as `dagster-webserver`, which would also respond to requests
from any other web page in the user's browser.
"""

from typing import Any

from dagster_webserver import cli
from dagster_webserver.webserver import DagsterWebserver
from starlette.middleware import Middleware

from tidemark.base.settings import Settings
from tidemark_streaming.base.origin_guard import OriginGuard


def main() -> None:
    """Serve Dagster's web interface until a signal ends the process."""
    hosts = Settings().allowed_hosts
    unguarded = DagsterWebserver.build_middleware

    def build_middleware(self: DagsterWebserver[Any, Any]) -> list[Middleware]:
        return [Middleware(OriginGuard, hosts=hosts), *unguarded(self)]

    DagsterWebserver.build_middleware = build_middleware
    cli.main()


if __name__ == "__main__":
    main()
