"""How far a lane is, by its checkpoints: read as files, so that its Spark is not asked.

Spark writes a batch's offsets and then its commit. In real time that is one batch for each
checkpoint, at its end; in micro-batches one for each batch, and none where nothing comes.

Spark's checkpoints tell topics by their names alone. Beside them are the topics' ids: where one was
made anew, an offset of the old one says nothing, and what the new one has before it would be lost.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemark.base import atomic
from tidemark.base.private import make_folder


@dataclass(frozen=True)
class Checkpoint:
    """What a lane has put down last.

    Args:
        batch: its number.
        ends: by topic and partition, the offset after the last one that was carried.
    """

    batch: int
    ends: dict[tuple[str, int], int]

    def since(self, before: "Checkpoint | None") -> int:
        """How many offsets were carried since another one, of the partitions that both have."""
        known = {} if before is None else before.ends
        return sum(end - known[place] for place, end in self.ends.items() if place in known)


def made_anew(home: Path, there: Mapping[str, str]) -> list[str]:
    """The topics of a lane's checkpoints that are others by now. Those that are new are noted.

    Args:
        home: the lane's folder.
        there: the ids of the topics that are there, by name.
    """
    file = home / "checkpoints" / "topics.json"
    known: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
    anew = sorted(name for name, told in there.items() if known.get(name, told) != told)
    if not anew and (more := {**known, **there}) != known:
        make_folder(file.parent)
        atomic.write(file, json.dumps(more))
    return anew


def newest(home: Path) -> Checkpoint | None:
    """The newest checkpoint of a lane's records; None before the first.

    Args:
        home: the lane's folder.
    """
    place = home / "checkpoints" / "records"
    numbers = [int(f.name) for f in (place / "commits").glob("[0-9]*") if f.name.isdigit()]
    for number in sorted(numbers, reverse=True)[:2]:
        try:
            told: Any = json.loads((place / "offsets" / str(number)).read_text().splitlines()[-1])
        except (OSError, ValueError, IndexError):
            # It was removed since, or is not written to its end.
            continue
        ends = {(t, int(p)): end for t, ps in told.items() for p, end in ps.items()}
        return Checkpoint(number, ends)
    return None
