"""Read a lane's progress from its checkpoint files, without a request to its Spark.

Spark writes a batch's offsets and then its commit. In real-time mode, a batch lasts from one
checkpoint to the next. In micro-batch mode, each batch writes a checkpoint, and no batch runs
without new records.

Spark's checkpoints identify topics only by name, so the topics' IDs are stored next to the
checkpoints. If a topic was recreated, the offsets in the checkpoints have no meaning for the new
topic: a lane that continued at them would miss the records before them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemark.base.files import atomic
from tidemark.base.files.private import make_folder


@dataclass(frozen=True)
class _Checkpoint:
    """The last checkpoint of a lane.

    Args:
        batch: the number of the batch that ended with the checkpoint.
        ends: the offset after the last processed offset, by topic and partition.
    """

    batch: int
    ends: dict[tuple[str, int], int]

    def count_since(self, earlier: "_Checkpoint | None") -> int:
        """Return the number of offsets that were processed since an earlier checkpoint, in
        partitions that both checkpoints have."""
        if earlier is None:
            return 0
        count = 0
        for partition, end in self.ends.items():
            if partition in earlier.ends:
                count += end - earlier.ends[partition]
        return count


def recreated_topics(home: Path, topic_ids: Mapping[str, str]) -> list[str]:
    """Return the topics that were recreated since a lane's last checkpoint. If there are none,
    store the IDs of new topics.

    Args:
        home: the folder of the lane.
        topic_ids: the current IDs of the lane's input topics, by name.
    """
    file = home / "checkpoints" / "topics.json"
    recorded_ids = dict[str, str]()
    if file.exists():
        recorded_ids = json.loads(file.read_text())
    recreated = list[str]()
    for name, topic_id in sorted(topic_ids.items()):
        if recorded_ids.get(name, topic_id) != topic_id:
            recreated.append(name)
    all_ids = {**recorded_ids, **topic_ids}
    if not recreated and all_ids != recorded_ids:
        make_folder(file.parent)
        atomic.write_atomically(file, json.dumps(all_ids))
    return recreated


def read_newest(home: Path) -> _Checkpoint | None:
    """Return the newest checkpoint of a lane's query for records; None before the first checkpoint.

    Args:
        home: the folder of the lane.
    """
    folder = home / "checkpoints" / "records"
    numbers = [int(f.name) for f in (folder / "commits").glob("[0-9]*") if f.name.isdigit()]
    for number in sorted(numbers, reverse=True)[:2]:
        try:
            lines = (folder / "offsets" / str(number)).read_text().splitlines()
            parsed: Any = json.loads(lines[-1])
        except (OSError, ValueError, IndexError):
            # The file was removed in the meantime, or is incomplete.
            continue
        ends = dict[tuple[str, int], int]()
        for topic, partitions in parsed.items():
            for partition, end in partitions.items():
                ends[topic, int(partition)] = end
        return _Checkpoint(number, ends)
    return None
