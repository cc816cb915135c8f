"""The Pythons that are on this machine."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

NEWEST = (3, 13)
"""The newest that the package is for."""


def newest() -> Path:
    """The newest Python that the package is for and that is here; it may be the one that runs."""
    for minor in range(NEWEST[1], sys.version_info.minor, -1):
        name = f"{NEWEST[0]}.{minor}"
        versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
        on_path = shutil.which(f"python{name}")
        kept = (version / "bin" / "python" for version in sorted(versions.glob(f"{name}.*")))
        for python in ([Path(on_path)] if on_path else []) + list(kept):
            # One of a version manager may be a stand-in for what is not chosen.
            asked = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
            said = subprocess.run(asked, capture_output=True, text=True, check=False)
            if said.stdout.strip() == name:
                return python
    return Path(sys.executable)
