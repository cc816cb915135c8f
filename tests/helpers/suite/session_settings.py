"""Settings that a test leaves in the session of `spark`, where they would change later tests."""

from pyspark.sql import SparkSession

_KEPT = {
    "spark.sql.parquet.outputTimestampType",
    "spark.sql.optimizer.excludedRules",
    # Delta sets these two when it reads or writes a table with column mapping.
    "spark.sql.parquet.fieldId.read.enabled",
    "spark.sql.parquet.fieldId.write.enabled",
    # The next stream in the session replaces it.
    "tidemark.stream.owner",
}
"""Settings that stay in each session, and do not concern other tests."""


class SessionSettings:
    """The settings of a session, compared at the end of each module."""

    def __init__(self, session: SparkSession) -> None:
        self._before = _read(session)

    def describe_changes(self, session: SparkSession) -> str:
        """Return the settings that differ from those at the last call; an empty text if none do."""
        before, now = self._before, _read(session)
        self._before = now
        changed = sorted(name for name in before | now if before.get(name) != now.get(name))
        return str({name: (before.get(name), now.get(name)) for name in changed}) if changed else ""


def _read(session: SparkSession) -> dict[str, str]:
    settings = session.conf.getAll
    return {name: value for name, value in settings.items() if name not in _KEPT}
