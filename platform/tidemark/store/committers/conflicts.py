"""Wait before a commit is tried again."""

import random
import time


def wait_after_conflict(attempt: int) -> None:
    """Wait for a random time. Its upper limit doubles with each attempt, from 0.05 to 1 second."""
    time.sleep(random.uniform(0, 0.05 * min(2**attempt, 20)))
