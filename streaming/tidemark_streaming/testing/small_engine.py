"""The settings of an engine for tests, which compute few rows."""

import os
from pathlib import Path

from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port

TEST_HOME = "TIDEMARK_TEST_HOME"
"""The environment variable with the home of an engine that is kept running, for repeated runs of a
few tests."""

INTERPRETING = (
    "-XX:+UseParallelGC "
    "-XX:Tier4InvocationThreshold=100000 -XX:Tier4MinInvocationThreshold=12000 "
    "-XX:Tier4CompileThreshold=300000 -XX:Tier4BackEdgeThreshold=800000 "
    "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN "
    "-Dderby.system.durability=test"
)
"""Java options of an engine for few rows. The engine interprets plans instead of generating code,
which halves the time of a run.

Both JIT compilers of the JVM stay on: after ten minutes, a run takes three quarters of the time
that it takes with only the quick compiler (C1). The thorough compiler (C2) would use half of the
processor in the first minutes, so it compiles only code that runs twenty times as often as by
default. Runs over many events, which generated code speeds up, are slower with these options.

The catalog's database does not wait for the disk, because no test has to survive a power cut.
"""


def start_or_reuse(home: Path, memory: str = "1g") -> tuple[Settings, bool]:
    """Return the engine's settings, and whether the engine keeps running after the tests."""
    if reused_home := os.environ.get(TEST_HOME):
        return Settings(home=Path(reused_home), engine_java_options=INTERPRETING), True
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
