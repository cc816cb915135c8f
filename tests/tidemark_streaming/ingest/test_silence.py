"""The silence of a source, as an ingest measures it: when a heartbeat is due."""

import pytest

from tidemark_streaming.ingest.silence import Silence

SECOND = 1_000_000


class Polls:
    """Polls of a source with a heartbeat of ten seconds, at given seconds."""

    def __init__(self, heartbeat: int | None = 10) -> None:
        self.now = self.jump = 0.0
        length = None if heartbeat is None else heartbeat * SECOND
        self.silence = Silence(length, lambda: self.now, lambda: 1e9 + self.now + self.jump)

    def at(self, *seconds: float) -> list[float | None]:
        """Return the silence at each heartbeat that is due, in seconds; None if none is due."""
        found = list[float | None]()
        for self.now in seconds:
            silent = self.silence.record_empty_poll()
            found.append(None if silent is None else silent / SECOND)
        return found


def test_a_heartbeat_is_due_each_time_its_interval_has_passed() -> None:
    assert Polls().at(100, 109.9, 110, 119.9, 120, 131) == [None, None, 10, None, 20, 31]


def test_silence_begins_with_the_first_poll_that_finds_nothing() -> None:
    polls = Polls()
    assert polls.at(0, 10, 25) == [None, 10, 25]
    # Data, or an outage: nobody knows what happened in the meantime.
    polls.silence.end_silence()
    assert polls.at(1_000, 1_009, 1_010) == [None, None, 10]


@pytest.mark.parametrize("jump", [-3_600, 3_600, 61, -61])
def test_a_jump_of_the_clock_begins_the_silence_again(jump: float) -> None:
    polls = Polls()
    assert polls.at(0, 10, 20) == [None, 10, 20]
    polls.jump = jump
    assert polls.at(30, 39, 40, 50) == [None, None, 10, 20]
    # A clock that is corrected bit by bit does not jump.
    polls.jump += 59
    assert polls.at(60) == [30]


def test_a_source_without_a_heartbeat_has_none() -> None:
    assert Polls(heartbeat=None).at(0, 1e9) == [None, None]
