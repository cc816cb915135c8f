"""The work of the project `market`: every kind of ingest and run, on one machine or on several."""

from collections.abc import Sequence
from itertools import cycle

from helpers.cluster.machine import Machine
from helpers.kafka.topics import Topics

ASSETS = (
    "orders_hourly",
    "order_sessions",
    "orders_taxed",
    "orders_two_hourly",
    "unpaid_hourly",
    "cents_hourly",
    "busiest_hours",
    "clicks_hourly",
)
"""The assets, each after those that it reads."""

DERIVED = ("paid_orders", "orders_in_cents", "hours")
"""The derived sources: a join, a row asset, and a chain."""

_CITIES = ("leeds", "york", "hull")
_ORDER_HEADER = "ordered_at,city,amount\n"
_PAYMENT_HEADER = "paid_at,city,paid\n"


class Site:
    """Machines that take turns with the commands of a project."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.machines = machines
        self._turns = cycle(machines)

    def run(self, *arguments: str) -> str:
        """Run a command, which must succeed, on the next machine."""
        return next(self._turns).run(*arguments)

    def materialize(self, asset: str, partition: str) -> None:
        """Materialize a partition of an asset with Dagster, on the next machine."""
        next(self._turns).materialize(asset, partition)

    def land_orders(self, name: str, first_hour: int, last_hour: int, further: str = "") -> None:
        """Write a file with a session of three orders in each hour, by city, and further lines."""
        lines = [
            f"2026-01-01T{hour:02}:{minute:02}:00Z,{city},{hour * 10 + minute}\n"
            for hour in range(first_hour, last_hour)
            for minute in (5, 15, 25)
            for city in _CITIES
        ]
        self.machines[0].land("orders", name, f"{_ORDER_HEADER}{''.join(lines)}{further}")

    def land_payments(self, name: str, first_hour: int, last_hour: int) -> None:
        """Write a file with a payment in each hour, in two of the cities."""
        lines = [
            f"2026-01-01T{hour:02}:30:00Z,{city},{hour}\n"
            for hour in range(first_hour, last_hour)
            for city in _CITIES[:2]
        ]
        self.machines[0].land("payments", name, f"{_PAYMENT_HEADER}{''.join(lines)}")


def send_clicks(topics: Topics, topic: str, first_hour: int, last_hour: int) -> None:
    """Send a click in each minute."""
    records = [
        f'{{"at": "2026-01-01T{hour:02}:{minute:02}:00Z", "city": "hull", "seconds": {minute}}}'
        for hour in range(first_hour, last_hour)
        for minute in range(60)
    ]
    topics.send(topic, [record.encode() for record in records])


def do_all_work(site: Site) -> None:
    """Ingest the sources, and run, recompute, decide and erase in all ways."""
    for machine in site.machines:
        machine.run("dbt", "sources", "orders_hourly")
    site.land_orders("1.csv", 8, 11)
    site.land_payments("1.csv", 8, 11)
    site.run("ingest", "orders")
    site.run("ingest", "payments")
    site.run("ingest", "clicks")
    run_all(site)

    late = "2026-01-01T10:50:00Z,york,1\n"
    too_late = "2026-01-01T08:10:00Z,york,1\n"
    too_high = "2026-01-01T11:30:00Z,leeds,20000\n"
    site.land_orders("2.csv", 11, 13, late + too_late + too_high)
    site.land_payments("2.csv", 11, 13)
    site.run("ingest", "orders")
    site.run("ingest", "payments")
    site.run("run", "orders_hourly")

    site.land_orders("3.csv", 13, 16)
    site.run("ingest", "orders")
    site.run("stream", "orders_hourly", "--until-caught-up")
    site.run("backfill", "orders_hourly", "--from", "2026-01-01T09:00", "--to", "2026-01-01T11:00")
    site.run("backfill", "order_sessions")
    site.materialize("orders_taxed", "2026-01-01")
    site.run("quarantine", "release", "orders_hourly", "--all")
    site.run("dbt", "build")
    site.run("erase", "orders", "--where", "city = 'york' AND amount = 105", "--yes")
    run_all(site)
    site.run("dbt", "build")


def run_all(site: Site, *, clicks: bool = True) -> None:
    """Ingest the derived sources, and run all assets.

    Args:
        clicks: false to leave out the asset whose source is a topic.
    """
    site.run("run", "orders_hourly")
    for source in DERIVED:
        site.run("ingest", source)
    for asset in ASSETS[1:]:
        if clicks or asset != "clicks_hourly":
            site.run("run", asset)
