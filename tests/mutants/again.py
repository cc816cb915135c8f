"""`python -P again.py FILE`: the tests of a file, run as often as a line on stdin asks for.

It has collected them once, so it has imported what they need of other packages; what is of the
folder in which it works it forgets again. Each run is a fork of it, in which only that is imported.
"""

import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest

QUIET = ["-q", "-p", "no:cacheprovider"]


def forget(root: Path) -> None:
    """Forget the modules whose files are in `root`, where one of them will be another."""

    def within(module: object) -> bool:
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
        return any(root in Path(place).parents for place in places if place)

    for name in [name for name, module in list(sys.modules.items()) if within(module)]:
        del sys.modules[name]


def spare_shrinking() -> None:
    """Let Hypothesis, where tests go by it, end with the first example that fails: that a fault is
    seen is all that is asked."""
    if "hypothesis" in sys.modules:
        from hypothesis import Phase, settings

        some = [Phase.explicit, Phase.reuse, Phase.generate]
        settings.register_profile("first", settings.default, phases=some)
        settings.load_profile("first")


def run(arguments: list[str]) -> tuple[int, str]:
    """How pytest ended in a fork, and what it said."""
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if child == 0:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            spare_shrinking()
            code = int(pytest.main(arguments))
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        try:
            _, status = os.waitpid(child, 0)
        except KeyboardInterrupt:
            os.kill(child, signal.SIGTERM)
            os.waitpid(child, 0)
            raise
        said.seek(0)
        return os.waitstatus_to_exitcode(status), said.read()


def main(tests: str) -> None:
    asked, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    pytest.main([*QUIET, "--collect-only", tests])
    forget(Path.cwd())
    # pytest has it raise; here, too, a signal ends it as an interrupt does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as base:
        for line in asked:
            only = json.loads(line)
            selected = ["-k", only] if only else []
            answer = run([*QUIET, "-x", f"--basetemp={base}/tests", tests, *selected])
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
