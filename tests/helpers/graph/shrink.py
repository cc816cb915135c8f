"""Reduce a failing case to a short one that fails in the same way."""

import time
from collections.abc import Callable, Iterator
from copy import deepcopy

from helpers.graph.case import Part, without_node, without_operations
from helpers.graph.live import Failure

Attempt = Callable[[Part], object]
"""A function that lives through a case, and raises `Failure` if the invariant was broken."""


def shrink(case: Part, failure: Failure, attempt: Attempt, seconds: float) -> tuple[Part, Failure]:
    """Return the smallest failing case that was found, with its failure.

    Args:
        seconds: the time after which no more smaller cases are tried.
    """
    deadline = time.monotonic() + seconds
    smallest, last = _until(case, failure.number), failure
    progressed = True
    while progressed:
        progressed = False
        for candidate in _smaller(smallest):
            if time.monotonic() > deadline:
                return smallest, last
            found = _failure_of(candidate, attempt)
            if found is not None and _is_alike(failure, found):
                smallest, last, progressed = _until(candidate, found.number), found, True
                break
    return smallest, last


def _failure_of(case: Part, attempt: Attempt) -> Failure | None:
    try:
        attempt(case)
    except Failure as failure:
        return failure
    return None


def _is_alike(one: Failure, other: Failure) -> bool:
    return one.kind == other.kind and one.cause == other.cause


def _until(case: Part, number: int) -> Part:
    """Return a case without the operations after a number."""
    return without_operations(case, range(number + 1, len(case["operations"])))


def _smaller(case: Part) -> Iterator[Part]:
    """Yield smaller cases, those that lack most first."""
    count = len(case["operations"])
    size = count // 2
    while size > 0:
        for first in range(0, count, size):
            yield without_operations(case, range(first, min(first + size, count)))
        size //= 2
    for name in reversed([*case["sources"], *case["nodes"]]):
        if (smaller := without_node(case, name)) is not None:
            yield smaller
    for number, operation in enumerate(case["operations"]):
        for end in ("kill", "engine", "interrupted"):
            if end in operation:
                yield _with(case, number, {k: v for k, v in operation.items() if k != end})
        rows = operation.get("rows", [])
        for row in range(len(rows) if len(rows) > 1 else 0):
            yield _with(case, number, {**operation, "rows": rows[:row] + rows[row + 1 :]})
    for number, operation in enumerate(case["operations"]):
        if operation["then"]:
            yield _with(case, number, {**operation, "then": []})


def _with(case: Part, number: int, operation: Part) -> Part:
    changed = deepcopy(case)
    changed["operations"][number] = deepcopy(operation)
    return changed
