"""Code that runs as another user of this machine, if the test runs as root."""

import os
import subprocess
from pathlib import Path

import pytest

USER = 65534
"""The ID of the user `nobody`."""

PYTHON = Path("/usr/bin/python3")
"""A Python that every user can run."""

needs_a_stranger = pytest.mark.skipif(
    os.geteuid() != 0 or not PYTHON.exists(),
    reason=f"not root, or no {PYTHON}: nothing was tried as another user",
)


def as_stranger(code: str, *arguments: str | Path | int) -> subprocess.CompletedProcess[str]:
    """Run code as the other user, without the environment and groups of the tests' user."""
    return subprocess.run(
        [PYTHON, "-I", "-c", code, *map(str, arguments)],
        user=USER,
        group=USER,
        extra_groups=[],
        cwd="/",
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
