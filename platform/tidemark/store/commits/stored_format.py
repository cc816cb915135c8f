"""Write and read the commits of a state as JSON: the kind, and the fields of that kind."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from tidemark.define.identity.parts import Part
from tidemark.store.commits.commit_info import StateCommit
from tidemark.store.commits.coverage import BackfilledRange, Coverage, TimelinePosition
from tidemark.store.commits.increment import Increment
from tidemark.store.commits.replacement import Cause, Replacement, SessionReplacement
from tidemark.store.commits.table_swap import Promotion, Rollback

_KINDS: dict[str, type[StateCommit]] = {
    kind.__name__: kind
    for kind in (Increment, Replacement, SessionReplacement, Promotion, Rollback)
}


def to_json(commit: StateCommit) -> str:
    return json.dumps({"kind": type(commit).__name__, **asdict(commit)}, separators=(",", ":"))


def from_json(text: str) -> StateCommit:
    plain = json.loads(text)
    kind = _KINDS[plain.pop("kind")]
    return kind(**{n: _READ[n](value) if n in _READ else value for n, value in plain.items()})


def _coverage(plain: dict[str, Any]) -> Coverage:
    covers = (
        BackfilledRange(c["start"], c["end"], TimelinePosition(**c["at"])) for c in plain["covers"]
    )
    return Coverage(TimelinePosition(**plain["at"]), tuple(covers), plain["whole"])


_READ: dict[str, Callable[[Any], Any]] = {
    "before": _coverage,
    "after": _coverage,
    "cause": Cause,
    "parts": lambda parts: parts and {name: Part(*part) for name, part in parts.items()},
    "ranges": lambda ranges: tuple((start, end) for start, end in ranges),
    "taken": lambda taken: {table: (name, at) for table, (name, at) in taken.items()},
}
