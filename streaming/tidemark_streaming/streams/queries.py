"""Find the running streams of many assets at once, without a client session for each.

Each stream has a session of its own on the engine, and Spark lists the queries of one session at a
time. Each session therefore gets one small request over a shared connection, several in parallel.
A request takes at most ten milliseconds; a client for the session would take a quarter of a second.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from tidemark.base.errors import EngineError, EngineLostError
from tidemark.base.settings import Settings
from tidemark.engine.connect import USER, reach_engine
from tidemark.engine.probe import DEADLINE, create_channel
from tidemark_streaming.streams import continuous

if TYPE_CHECKING:
    from pyspark.sql.connect.proto import SparkConnectServiceStub

_AT_ONCE = 8
"""The number of sessions that are queried in parallel."""


class Query(NamedTuple):
    """The IDs of a streaming query that runs on the engine.

    Args:
        id: the ID of the query, the same for every start.
        run: the ID of this start.
    """

    id: str
    run: str


def find_running(settings: Settings, assets: Iterable[str]) -> dict[str, Query]:
    """Return the running queries of assets, by asset. Omit assets without a running query."""
    import grpc
    from pyspark.sql.connect.proto import SparkConnectServiceStub

    from tidemark.engine.loss import is_loss

    url = reach_engine(settings)
    builder = create_channel(url)
    metadata = builder.metadata()
    with builder.toChannel() as open_, ThreadPoolExecutor(_AT_ONCE) as pool:
        stub = SparkConnectServiceStub(open_)

        def find_query(asset: str) -> Query | None:
            session_queries = _of_session(stub, continuous.session_id(settings, asset), metadata)
            return session_queries.get(continuous.query_name(settings.database, asset))

        listed = list(assets)
        try:
            queries = list(pool.map(find_query, listed))
        except grpc.RpcError as error:
            if is_loss(error):
                raise EngineLostError from error
            status = error.code() if isinstance(error, grpc.Call) else None
            reason = type(error).__name__ if status is None else status.name
            raise EngineError(
                f"Can't ask the engine at {url.partition('/;')[0]} which streams run "
                f"({reason}): `tidemark status` shows whether it responds.",
                # An engine that has just been started may be slow.
                retriable=status is grpc.StatusCode.DEADLINE_EXCEEDED,
            ) from error
    return {asset: query for asset, query in zip(listed, queries, strict=True) if query is not None}


def _of_session(
    stub: "SparkConnectServiceStub", session_id: str, metadata: list[tuple[str, str]]
) -> dict[str, Query]:
    from pyspark.sql.connect import proto

    ask = proto.StreamingQueryManagerCommand(active=True)
    request = proto.ExecutePlanRequest(
        session_id=session_id,
        user_context=proto.UserContext(user_id=USER),
        plan=proto.Plan(command=proto.Command(streaming_query_manager_command=ask)),
    )
    answers = stub.ExecutePlan(request, metadata=metadata, timeout=DEADLINE)
    queries = dict[str, Query]()
    for answer in answers:
        active = answer.streaming_query_manager_command_result.active
        for query in active.active_queries:
            queries[query.name] = Query(query.id.id, query.id.run_id)
    return queries
