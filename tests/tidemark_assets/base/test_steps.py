"""Test failures of steps: retriable errors are retried, and the rest fail with a message."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from tidemark.base.errors import ConflictError, DataError, EngineError, TidemarkError
from tidemark_assets.base import steps
from tidemark_assets.base.steps import Failures, failing_with_message


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "RETRY_DELAYS_SECONDS", (0, 0, 0))


def tries(*errors: TidemarkError | None, together: bool = False) -> tuple[int, str | None]:
    """Run a step whose attempts raise these errors. Return the attempts and the last error."""
    left, made = list(errors), list[int]()

    @dg.op
    def work(context: dg.OpExecutionContext) -> None:
        made.append(context.retry_number)
        error, failures = left.pop(0), Failures(context)
        if together:
            if error is not None:
                failures.add(f"this: {error}", error)
            failures.raise_all()
            return
        with failing_with_message():
            if error is not None:
                raise error

    @dg.job
    def job() -> None:
        work()

    result = job.execute_in_process(raise_on_error=False)
    assert made == list(range(len(made)))
    ended = [e.step_failure_data.error for e in result.all_events if e.is_step_failure]
    return len(made), next((e.message.partition("Failure: ")[2] for e in ended if e), None)


@pytest.mark.parametrize("together", [False, True])
def test_retriable_errors_are_retried(together: bool) -> None:
    busy, gone = ConflictError("Others were quicker."), EngineError("No engine answers.")
    assert tries(busy, gone, None, together=together) == (3, None)


def test_a_persistent_error_fails_with_its_message_after_four_attempts() -> None:
    assert tries(*[EngineError("No engine answers.")] * 9) == (4, "No engine answers.\n")
    together = tries(*[ConflictError("Others were quicker.")] * 9, together=True)
    assert together == (4, "this: Others were quicker.\n")


@pytest.mark.parametrize("together", [False, True])
def test_errors_that_need_a_user_are_not_retried(together: bool) -> None:
    count, said = tries(DataError("It was never ingested."), None, together=together)
    assert count == 1
    assert said is not None
    assert said.endswith("It was never ingested.\n")


def test_steps_of_assets_and_checks_are_retried() -> None:
    made = list[str]()

    def work(step: str) -> None:
        made.append(step)
        with failing_with_message():
            if made.count(step) < 3:
                raise ConflictError("Others were quicker.")

    @dg.asset
    def some() -> None:
        work("some")

    @dg.asset_check(asset=some)
    def well() -> dg.AssetCheckResult:
        work("well")
        return dg.AssetCheckResult(passed=True)

    @dg.multi_asset(specs=[dg.AssetSpec("one")])
    def several() -> Iterator[dg.MaterializeResult[Any]]:
        work("several")
        yield dg.MaterializeResult(asset_key="one")

    definitions = dg.Definitions(assets=[some, several], asset_checks=[well])
    job = definitions.resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(raise_on_error=False).success
    assert sorted(made) == sorted(["some", "well", "several"] * 3)
