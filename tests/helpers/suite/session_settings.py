"""Settings that a test leaves in the session of `spark`, where they would change later tests."""

from pyspark.sql import SparkSession

_CHECKED = "spark.sql.streaming."
"""The prefix of settings that each query takes over at its start. Runs change settings of Spark's
planner themselves, and so do not depend on those that a test leaves."""


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
    return {name: value for name, value in settings.items() if name.startswith(_CHECKED)}
