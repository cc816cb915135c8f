"""The settings of an engine for tests, which compute few rows."""

import os
from pathlib import Path

from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port

TEST_HOME = "TIDEMARK_TEST_HOME"
"""A variable: the home of an engine that is kept, for who runs a few tests again and again."""

INTERPRETING = (
    "-XX:+UseParallelGC "
    "-XX:Tier4InvocationThreshold=25000 -XX:Tier4MinInvocationThreshold=3000 "
    "-XX:Tier4CompileThreshold=75000 -XX:Tier4BackEdgeThreshold=200000 "
    "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
)
"""Java options of an engine for few rows: their plans are interpreted, which takes half the time.

Both of the JVM's compilers are left on: after ten minutes a run takes three quarters of the time
that it takes with the quick one alone. The thorough one is asked for code that runs five times as
often as by default, as it takes half of the processor in the first minutes. Many events, for which
the engine generates code, would pay for that.
"""


def kept_or_new(home: Path, memory: str = "1g") -> tuple[Settings, bool]:
    """The engine's settings, and whether it is one that is kept.

    Args:
        home: that of a new one.
        memory: of a new one.
    """
    if kept := os.environ.get(TEST_HOME):
        return Settings(home=Path(kept), engine_java_options=INTERPRETING), True
    new = Settings(
        home=home,
        remote=None,
        engine_port=free_port(),
        engine_memory=memory,
        engine_java_options=INTERPRETING,
        engine_archive=False,
        engine_ui_port=None,
        engine_event_log=None,
    )
    return new, False
