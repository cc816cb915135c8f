"""An engine with two workers elsewhere: they see neither the client's home, nor its code.

The folders of the client, and those of Tidemark's code, are empty for the engine, as they are on
another machine.
"""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.cluster.machine import Machine, create_machine
from helpers.cluster.market import ASSETS, DERIVED, Site, run_all
from helpers.cluster.store_jars import store_conf
from helpers.processes.object_store import BUCKET, ObjectStore
from helpers.processes.own_engine import CLUSTER, OwnEngine, can_hide, own_engine
from helpers.suite.pages import ROOT

# Starts a cluster, which is killed and started again.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not can_hide(), reason="this user may not create a mount namespace"),
]

CODE = [ROOT / name for name in ("platform", "streaming", "assets", "tests")]
ASSET = "orders_hourly"

StartCluster = Callable[..., OwnEngine]


@pytest.fixture(scope="module")
def client_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the client, with its project and home, which the cluster does not see."""
    return tmp_path_factory.mktemp("client")


@pytest.fixture(scope="module")
def new_cluster(
    store: ObjectStore,
    store_jars: list[Path],
    client_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> StartCluster:
    """Return a function that returns a cluster, which is not started, with further settings."""

    def new(**conf: str) -> OwnEngine:
        # Both namespaces have the folder of the cluster, and no other one of the tests.
        return OwnEngine(
            tmp_path_factory.mktemp("cluster"),
            conf={**store_conf(), "spark.executor.memory": "768m", **conf},
            master=CLUSTER,
            extra_jars=store_jars,
            hidden=[client_folder, *CODE],
        )

    return new


@pytest.fixture(scope="module")
def cluster(new_cluster: StartCluster) -> Iterator[OwnEngine]:
    with own_engine(new_cluster()) as engine:
        yield engine


@pytest.fixture(scope="module")
def client(cluster: OwnEngine, client_folder: Path) -> Machine:
    return create_client(client_folder / "market", cluster)


def create_client(folder: Path, cluster: OwnEngine) -> Machine:
    """Return a machine that uses a cluster, and starts no engine."""
    return create_machine(
        folder,
        TIDEMARK_WAREHOUSE=f"{BUCKET}/{folder.name}",
        TIDEMARK_LANDING=f"{BUCKET}/landing_{folder.name}",
        TIDEMARK_REMOTE=cluster.address,
    )


@pytest.fixture(scope="module")
def site(client: Machine) -> Site:
    """Return the client after its first runs."""
    site = Site([client])
    site.land_orders("1.csv", 0, 4)
    site.land_payments("1.csv", 0, 4)
    site.run("ingest", "orders")
    site.run("ingest", "payments")
    run_all(site, clicks=False)
    return site


# This test comes first, so that only one cluster runs at a time.
def test_a_difference_of_the_workers_is_reported(
    new_cluster: StartCluster, client_folder: Path
) -> None:
    planted = {"spark.executorEnv.PYTHONHASHSEED": "7"}
    with own_engine(new_cluster(**planted)) as engine:
        checked = create_client(client_folder / "planted", engine).call("engine", "check")
    assert checked.returncode != 0
    output = " ".join((checked.stdout + checked.stderr).split())
    assert "workers" in output
    assert "runs without PYTHONHASHSEED=0" in output


def test_the_cluster_fits(client: Machine, cluster: OwnEngine) -> None:
    checked = client.call("engine", "check")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stdout == ""
    assert "fits" in checked.stderr
    assert len(cluster.executors()) == 2


def test_a_backfill_continues_without_a_lost_executor(
    site: Site, client: Machine, cluster: OwnEngine
) -> None:
    with client.start("backfill", "orders_taxed") as backfill:
        backfill.await_line("engine")
        cluster.kill_executor()
        assert backfill.end() == 0, backfill.output
    assert "equal" in site.run("parity", "orders_taxed")


def test_a_stream_continues_after_its_server_was_killed(
    site: Site, client: Machine, cluster: OwnEngine, record_property: Callable[[str, object], None]
) -> None:
    with client.start("stream", ASSET) as stream:
        stream.await_line("arrivals")
        site.land_orders("2.csv", 4, 6)
        site.run("ingest", "orders")
        client.await_current(ASSET)
        cluster.kill()
        # The error comes although the server is not back.
        seconds = stream.await_line("Waiting until it is back")
        record_property("seconds from the server's death to the error", round(seconds, 1))
        cluster.start()
        seconds = stream.await_line("The outage ended")
        record_property("seconds from the server's start to the end", round(seconds, 1))
        site.land_orders("3.csv", 6, 8)
        site.run("ingest", "orders")
        client.await_current(ASSET)
        stream.process.send_signal(signal.SIGTERM)
        stream.end()
    assert "Traceback" not in stream.output
    assert "equal" in site.run("parity", ASSET)
    site.run("fsck")


def test_a_run_fails_with_one_message_after_its_server_was_killed(
    site: Site, client: Machine, cluster: OwnEngine
) -> None:
    site.land_orders("4.csv", 8, 10)
    site.run("ingest", "orders")
    with client.start("run", ASSET) as run:
        run.await_line("engine")
        cluster.kill()
        code = run.end()
    cluster.start()
    assert code == 2, run.output
    assert "lost this session. Run the command again as soon as the engine at sc://" in run.output
    assert "Traceback" not in run.output
    site.run("run", ASSET)
    assert "equal" in site.run("parity", ASSET)


@pytest.mark.parametrize("name", [*(a for a in ASSETS if a != "clicks_hourly"), *DERIVED])
def test_the_results_equal_a_batch_computation(name: str, site: Site) -> None:
    assert "equal" in site.run("parity", name)
