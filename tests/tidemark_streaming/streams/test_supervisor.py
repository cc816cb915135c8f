"""When the supervisor restarts a stream, waits, and gives up, without an engine."""

import time
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from helpers.processes.clocks import shift_clock
from tidemark.base.errors import ConflictError, EngineError
from tidemark.base.settings import Settings
from tidemark_streaming.streams import desired_streams, supervisor
from tidemark_streaming.streams.desired_streams import renew_lease
from tidemark_streaming.streams.queries import Query
from tidemark_streaming.streams.supervisor import (
    GIVEN_UP,
    LONGEST_WAIT,
    RUNNING,
    SECOND,
    STARTING,
    STEADY,
    TRIES,
    WAITING,
    Ending,
    Stream,
    poll_streams,
)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, remote="sc://localhost:1")


def test_a_stream_that_was_not_requested_is_ignored(settings: Settings) -> None:
    assert poll_streams(settings, ["one"], {}, 0) == {}
    desired_streams.request_stream(settings, "one")
    assert poll_streams(settings, ["two"], {}, 0) == {}
    assert list(poll_streams(settings, ["one", "two"], {}, 0)) == ["one"]
    assert desired_streams.cancel_request(settings, "one")
    assert not desired_streams.cancel_request(settings, "one")
    assert poll_streams(settings, ["one"], {}, 0) == {}


def test_waits_double_up_to_a_limit_and_end_in_giving_up(settings: Settings) -> None:
    desired_streams.request_stream(settings, "one")
    now, known, waits = 0, dict[str, Stream](), list[int]()
    while (known := poll_streams(settings, ["one"], known, now))["one"].state != GIVEN_UP:
        if known["one"].state == WAITING:
            waits.append(known["one"].wait_micros // SECOND)
            now += known["one"].wait_micros - 1
            assert poll_streams(settings, ["one"], known, now)["one"].state == WAITING
            now += 1
        else:
            assert known["one"].state == STARTING
            now += 30 * SECOND
    assert waits == [30, 60, 120, 240, 480, 960, 1800, 1800, 1800]
    assert waits[-1] * SECOND == LONGEST_WAIT
    stream = known["one"]
    assert stream.failures == TRIES
    assert "No engine answers at sc://localhost:1" in (stream.error or "")
    assert poll_streams(settings, ["one"], known, now + 10 * LONGEST_WAIT) == known


@pytest.mark.parametrize("state", [WAITING, GIVEN_UP])
def test_streams_are_restarted_after_an_engine_outage(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """The outage may have any length. Streams that wait or were given up for another reason are not
    restarted."""
    desired_streams.request_stream(settings, "one")
    now, known = 0, dict[str, Stream]()
    while (known := poll_streams(settings, ["one"], known, now))["one"].state != state:
        now += LONGEST_WAIT
    assert poll_streams(settings, ["one"], known, now + SECOND) == known
    monkeypatch.setattr(supervisor.queries, "find_running", lambda *_: {})
    found = poll_streams(settings, ["one"], known, now + SECOND)["one"]
    assert (found.state, found.failures, found.away) == (STARTING, 0, False)
    # The run that should start it fails.
    failed = poll_streams(settings, ["one"], {"one": found}, now + 30 * SECOND)
    assert (failed["one"].state, failed["one"].away) == (WAITING, False)
    assert poll_streams(settings, ["one"], failed, now + 31 * SECOND) == failed
    gone = {"one": replace(failed["one"], state=GIVEN_UP, failures=TRIES)}
    assert poll_streams(settings, ["one"], gone, now + LONGEST_WAIT) == gone


def test_a_wait_ends_if_the_clock_is_set_back(settings: Settings) -> None:
    """The duration of the wait is then unknown."""
    request, now = desired_streams.request_stream(settings, "one"), 10**15
    waits = Stream(request.since, WAITING, now, failures=9, error="It failed.")
    assert poll_streams(settings, ["one"], {"one": waits}, now + 60 * SECOND) == {"one": waits}
    found = poll_streams(settings, ["one"], {"one": waits}, now - 3600 * SECOND)["one"]
    assert (found.state, found.changed) == (STARTING, now - 3600 * SECOND)
    assert (found.failures, found.error) == (9, "It failed.")


def test_a_stream_is_steady_ten_minutes_after_a_clock_setback(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, now = desired_streams.request_stream(settings, "one"), 10**15
    Engine(monkeypatch)
    known = {"one": Stream(request.since, RUNNING, now, failures=1)}
    for minutes in range(9):
        known = poll_streams(settings, ["one"], known, now - (3600 - minutes * 60) * SECOND)
        assert known["one"].failures == 1
    assert poll_streams(settings, ["one"], known, now - 3000 * SECOND)["one"].failures == 0


def test_requesting_a_stream_again_resets_giving_up(settings: Settings) -> None:
    old = desired_streams.request_stream(settings, "one")
    known = {"one": Stream(old.since, GIVEN_UP, failures=TRIES)}
    desired_streams.cancel_request(settings, "one")
    time.sleep(0.001)
    desired_streams.request_stream(settings, "one")
    assert poll_streams(settings, ["one"], known, 0)["one"].state == STARTING


def test_a_start_in_progress_is_awaited(settings: Settings) -> None:
    request = desired_streams.request_stream(settings, "one")
    known = {"one": Stream(request.since, STARTING)}
    assert poll_streams(settings, ["one"], known, 10**9, starting=True) == known
    assert poll_streams(settings, ["one"], {}, 10**9, starting=True)["one"].state == WAITING
    assert poll_streams(settings, ["one"], known, 10**9)["one"].failures == 1


def test_a_stream_of_a_replaced_engine_is_restarted_at_once(engine: Settings) -> None:
    request = desired_streams.request_stream(engine, "one")
    gone = Stream(request.since, RUNNING, query=str(uuid4()), query_run=str(uuid4()))
    found = poll_streams(engine, ["one"], {"one": gone}, SECOND)["one"]
    assert (found.state, found.failures, found.renewed) == (STARTING, 0, True)
    assert desired_streams.cancel_request(engine, "one")


class Engine:
    """The engine's queries as a poll finds them, set by a test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs = 0
        self.ending: Ending | None = None
        monkeypatch.setattr(supervisor.queries, "find_running", lambda *_: self.found())
        monkeypatch.setattr(supervisor, "_find_endings", lambda *_: self.told())

    def start(self) -> None:
        self.runs, self.ending = self.runs + 1, None

    def end(self, sentence: str, *, blameless: bool) -> None:
        self.ending = Ending(sentence, blameless)

    def found(self) -> dict[str, Query]:
        return {} if self.ending else {"one": Query("id", f"run {self.runs}")}

    def told(self) -> dict[str, Ending]:
        return {"one": self.ending} if self.ending else {}


def test_a_stream_with_a_changed_definition_restarts_at_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, there = desired_streams.request_stream(settings, "one"), Engine(monkeypatch)
    known = {"one": Stream(request.since, RUNNING, 0, failures=TRIES - 1)}
    known = poll_streams(settings, ["one"], known, 0)
    assert known["one"].restarts == 0
    there.end("It has changed.", blameless=True)
    known = poll_streams(settings, ["one"], known, SECOND)
    told = known["one"]
    assert (told.state, told.failures, told.error) == (STARTING, 0, "It has changed.")

    there.start()
    known = poll_streams(settings, ["one"], known, 2 * SECOND)
    assert known["one"].state == RUNNING
    assert known["one"].restarts == 1
    # Two conflicting definitions must not restart it forever.
    for failures in range(1, TRIES + 1):
        there.end("It has changed again.", blameless=True)
        known = poll_streams(settings, ["one"], known, 3 * SECOND)
        assert known["one"].state == (WAITING if failures < TRIES else GIVEN_UP)
        assert known["one"].failures == failures
        there.start()
        known = poll_streams(settings, ["one"], known, 4 * SECOND)

    # Each restart counts, regardless of its cause.
    assert known["one"].restarts == 1 + TRIES

    # After a steady phase, a change counts as a new one.
    known = {"one": replace(known["one"], state=RUNNING, changed=0, renewed=True)}
    known = poll_streams(settings, ["one"], known, STEADY)
    there.end("It has changed.", blameless=True)
    assert poll_streams(settings, ["one"], known, STEADY + SECOND)["one"].state == STARTING


def test_a_changed_definition_waits_for_a_start_in_progress(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, there = desired_streams.request_stream(settings, "one"), Engine(monkeypatch)
    there.end("It has changed.", blameless=True)
    known = {"one": Stream(request.since, RUNNING, failures=5)}
    known = poll_streams(settings, ["one"], known, SECOND, starting=True)
    assert known["one"].state == WAITING
    assert poll_streams(settings, ["one"], known, SECOND)["one"].state == STARTING


def test_a_stream_that_fails_for_another_reason_waits(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, there = desired_streams.request_stream(settings, "one"), Engine(monkeypatch)
    there.end("Its state is of another format.", blameless=False)
    found = poll_streams(settings, ["one"], {"one": Stream(request.since, RUNNING)}, 0)["one"]
    assert (found.state, found.failures, found.wait_micros) == (WAITING, 1, 30 * SECOND)


def test_running_streams_stay_running_if_the_engine_is_silent(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {
        a: Stream(desired_streams.request_stream(settings, a).since, RUNNING)
        for a in ("one", "two")
    }
    known["one"] = replace(known["one"], query="id", query_run="run 1")
    there = Engine(monkeypatch)
    there.start()

    def silent() -> dict[str, Ending]:
        raise EngineError("The engine does not answer.")

    monkeypatch.setattr(there, "told", silent)
    found = poll_streams(settings, ["one", "two"], known, SECOND)
    assert found["one"] == known["one"]
    # As if the whole engine were unreachable.
    assert (found["two"].state, found["two"].error) == (STARTING, "The engine does not answer.")


def test_a_lease_has_one_owner_until_it_expires(settings: Settings) -> None:
    renew_lease(settings, "shop", "this", 0.2)
    renew_lease(settings, "shop", "this", 0.2)
    with pytest.raises(
        ConflictError, match=r"Another supervisor .*: this, active \d+ seconds ago\."
    ):
        renew_lease(settings, "shop", "that", 60)
    time.sleep(0.25)
    renew_lease(settings, "shop", "that", 0.2)
    with pytest.raises(ConflictError, match=r"This supervisor \(this\) is idle until"):
        renew_lease(settings, "shop", "this", 60)


def test_a_lease_is_lost_if_the_clock_is_set_back(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as ahead:
        shift_clock(ahead, 1)
        renew_lease(settings, "shop", "this", 120)
    renew_lease(settings, "shop", "that", 120)
    with monkeypatch.context() as ahead:
        shift_clock(ahead, 0.01)
        renew_lease(settings, "shop", "that", 120)
    # The clocks of two machines may differ by this much.
    with pytest.raises(ConflictError, match=r"that, active 0 seconds ago"):
        renew_lease(settings, "shop", "this", 120)
