"""Outages: which errors are retried, how long the waits are, and what is reported."""

import pytest

from tidemark.base.errors import DataError, EngineError, EngineLostError, TidemarkError
from tidemark_streaming.base.outage import LONGEST_WAIT, Outage

BROKERS = DataError("Kafka can't be read.", retriable=True)


def test_an_outage_is_reported_once_and_waits_grow_to_a_limit() -> None:
    said: list[str] = []
    slept: list[float] = []
    outage = Outage(said.append, slept.append)
    outage.end_outage()
    for _ in range(9):
        outage.wait_to_retry(BROKERS)
    assert slept == [0.5, 1, 2, 4, 8, 16, LONGEST_WAIT, LONGEST_WAIT, LONGEST_WAIT]
    assert said == ["Kafka can't be read. Waiting until it is back."]
    outage.wait_to_retry(DataError("It refuses the user.", retriable=True))
    outage.wait_to_retry(BROKERS)
    assert said.pop() == "It refuses the user. Waiting until it is back."
    outage.end_outage()
    outage.end_outage()
    assert said[1:] == ["The outage ended after 0 seconds: continuing."]
    outage.wait_to_retry(EngineError("No engine answers.", retriable=True))
    assert slept[-1] == 0.5
    assert said[2:] == ["No engine answers. Waiting until it is back."]


def test_a_lost_engine_is_retried() -> None:
    said: list[str] = []
    Outage(said.append, lambda _: None).wait_to_retry(EngineLostError())
    assert said == [f"{EngineLostError()} Waiting until it is back."]


def test_an_attempt_survives_only_the_loss_of_its_engine() -> None:
    said: list[str] = []
    outcomes: list[TidemarkError | None] = [EngineLostError(), EngineLostError(), BROKERS, None]

    def attempt() -> int:
        if (error := outcomes.pop(0)) is not None:
            raise error
        return 7

    assert Outage(said.append, lambda _: None).survive_loss(attempt) == 7
    assert len(said) == 2
    outcomes += [BROKERS]
    with pytest.raises(DataError):
        Outage(said.append, lambda _: None).survive_loss(attempt)


@pytest.mark.parametrize(
    "error",
    [
        DataError("A topic was made anew."),
        EngineError("The token was refused."),
    ],
)
def test_errors_that_need_a_person_are_not_retried(error: TidemarkError) -> None:
    slept: list[float] = []
    with pytest.raises(type(error), match=str(error)):
        Outage(sleep=slept.append).wait_to_retry(error)
    assert slept == []
