"""The seeds of random cases: other ones for each commit, or those that the environment names."""

import os
import subprocess
from pathlib import Path

EXAMPLES = int(os.environ.get("TIDEMARK_TEST_EXAMPLES", "0"))
"""The number of cases of each kind; 0 for a few."""
SEED = "TIDEMARK_TEST_SEED"
_DIGITS = 8
"""Digits of the commit's hash that choose the first seed."""


def seeds(few: int) -> range:
    """Return the seeds of a test.

    Args:
        few: the number of seeds, unless the environment says otherwise.
    """
    first = int(os.environ[SEED]) if SEED in os.environ else _seed_of_commit()
    return range(first, first + (EXAMPLES or few))


def _seed_of_commit() -> int:
    """Return a seed that follows from the commit that is checked out; 0 without one."""
    command = ["git", "rev-parse", "HEAD"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    return int(done.stdout[:_DIGITS], 16) if done.returncode == 0 else 0
