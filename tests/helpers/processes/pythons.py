"""The Python versions on this machine."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

NEWEST = (3, 13)
"""The newest supported version."""


def newest() -> Path:
    """Return the newest supported Python on this machine, which may be the running one."""
    for minor in range(NEWEST[1], sys.version_info.minor, -1):
        name = f"{NEWEST[0]}.{minor}"
        versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
        on_path = shutil.which(f"python{name}")
        kept = (version / "bin" / "python" for version in sorted(versions.glob(f"{name}.*")))
        for python in ([Path(on_path)] if on_path else []) + list(kept):
            # A version manager's Python may be a shim for a version that is not selected.
            asked = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
            said = subprocess.run(asked, capture_output=True, text=True, check=False)
            if said.stdout.strip() == name:
                return python
    return Path(sys.executable)
