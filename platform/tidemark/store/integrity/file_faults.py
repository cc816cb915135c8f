"""Find truncated commits and missing data files of a table on a local disk.

A power failure can cause them: files that were written last may be empty or incomplete.
"""

import json
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from tidemark.base.counts import format_count
from tidemark.store.committers.durable import LAST_CHECKPOINT, LOG, added_files

_BY_DELTA_RS = '"engineInfo":"delta-rs'


def log_entries(folder: str) -> list[Path]:
    """Return the commits in the transaction log of a table on a local disk, the oldest first."""
    files = Path(folder, LOG).glob("*.json")
    return sorted(file for file in files if file.stem.isdigit())


def find_broken_entry(folder: str) -> str | None:
    """Return the problem with the transaction log of a table; None if the log is intact."""
    checkpoint_version = _read_checkpoint_version(folder)
    for entry in log_entries(folder):
        version = int(entry.stem)
        if version > checkpoint_version and not _is_whole(entry):
            return f"has a truncated or empty commit (version {version})"
    return None


def find_broken_file(folder: str, opened: DeltaTable) -> str | None:
    """Return the problem with a table's data files; None if all exist in full size."""
    files = pa.table(opened.get_add_actions(flatten=True))
    paths = files["path"].to_pylist()
    sizes = files["size_bytes"].to_pylist()
    version = opened.version()
    for path, size in zip(paths, sizes, strict=True):
        try:
            actual_size = Path(folder, path).stat().st_size
        except FileNotFoundError:
            return f"is missing the data file '{path}' at version {version}"
        if actual_size != size:
            return (
                f"has the data file '{path}' with {format_count(actual_size, 'byte')} instead of "
                f"{size:,} at version {version}"
            )
    return None


def _read_checkpoint_version(folder: str) -> int:
    """Return the version of a table's newest checkpoint; -1 if it has none.

    A table is opened from its newest checkpoint, so that earlier commits do not matter.
    """
    try:
        text = Path(folder, LOG, LAST_CHECKPOINT).read_text()
        return int(json.loads(text)["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return -1


def _is_whole(entry: Path) -> bool:
    """Return whether the file of a commit is complete: it has content, and is valid JSON."""
    try:
        text = entry.read_text()
        added_files(text)
    except ValueError:
        return False
    except FileNotFoundError:
        # The table was dropped, or its transaction log was trimmed, in the meantime.
        return True
    # delta-rs writes one action per line, without a line break after the last one.
    is_cut = text.endswith("\n") and _BY_DELTA_RS in text
    return text.strip() != "" and not is_cut
