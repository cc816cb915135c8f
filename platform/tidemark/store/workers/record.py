"""The record of a worker: the wish that it runs, its owner, and its report."""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from tidemark.store.workers.owner import Owner, Process

SECOND = 1_000_000


@dataclass(frozen=True)
class WorkerRecord:
    """A worker, such as the ingest of a source or the stream of an asset.

    Args:
        kind: the kind of work, for example `ingest`.
        name: the source, asset or domain that the worker is for.
        wish: what should run, as the kind defines it; None if nothing should run.
        owner: the owner of the work; None if it is free.
        until: the instant at which the owner loses the work if it does not renew its lease, in
            microseconds.
        lasts: the duration of a lease, in microseconds.
        report: what was reported about the worker, as the kind defines it.
        revision: the number of changes. Two revisions never have the same content, so that a store
            can compare them.
    """

    kind: str
    name: str
    wish: Mapping[str, Any] | None = None
    owner: Owner | None = None
    until: int = 0
    lasts: int = 0
    report: Mapping[str, Any] = field(default_factory=dict[str, Any])
    revision: int = 0

    @property
    def is_free(self) -> bool:
        """True if the work has no owner, or if its owner has exited or lost its lease.

        Whether a process of this machine has exited is known at once. Other owners are known only
        by their leases.
        """
        if self.owner is None:
            return True
        process = self.owner.process
        if process is not None and process.is_near:
            return process.has_exited
        return not self.has_lease

    @property
    def has_lease(self) -> bool:
        """True if the lease has not expired.

        A lease that was renewed far in the future has expired: the clock was set back since. One
        that was renewed slightly in the future has not, because clocks of machines differ.
        """
        renewed_at = self.until - self.lasts
        return abs(time.time_ns() // 1000 - renewed_at) < self.lasts

    def owned_by(self, owner: Owner, lasts: int) -> Self:
        """Return the record with an owner whose lease begins now.

        Args:
            lasts: the duration of the lease, in microseconds.
        """
        return replace(self, owner=owner, lasts=lasts, until=time.time_ns() // 1000 + lasts)

    def without_owner(self) -> Self:
        """Return the record without an owner."""
        return replace(self, owner=None, until=0, lasts=0)

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        values: dict[str, Any] = json.loads(text)
        owner = values["owner"]
        if owner is not None:
            if owner["process"] is not None:
                owner["process"] = Process(*owner["process"])
            values["owner"] = Owner(**owner)
        return cls(**values)
