"""Tests of translating the engine's failures: errors in a user's code or data become one line."""

import pytest
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import PythonException, SparkConnectGrpcException

from tidemark.base.errors import DataError
from tidemark.engine.failures import find_cause, translate_failures

TRACE = """\
An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "{library}/pyspark/worker.py", line 2000, in main
    process()
  File "/home/ann/shop/shop/transforms.py", line 13, in price
    return 1 // (value - value)
  File "{library}/numpy/core.py", line 7, in divide
    raise
ZeroDivisionError: integer division or modulo by zero

JVM stacktrace:
org.apache.spark.api.python.PythonException
"""


def test_a_python_exception_names_the_users_line() -> None:
    library = pytest.__file__.rpartition("/pytest/")[0]
    error = PythonException(TRACE.format(library=library))
    said = (
        "a Python function failed at /home/ann/shop/shop/transforms.py, line 13: "
        "ZeroDivisionError: integer division or modulo by zero."
    )
    assert find_cause(error) == said
    with pytest.raises(DataError) as raised, translate_failures("orders_hourly"):
        raise error
    assert str(raised.value) == f"Asset 'orders_hourly': {said}"


def test_an_exception_raised_only_in_a_library_says_so() -> None:
    trace = 'Traceback (most recent call last):\n  File "<frozen>", line 1, in f\nValueError: no\n'
    assert (
        find_cause(PythonException(trace))
        == "a Python function failed in a library: ValueError: no."
    )


@pytest.mark.parametrize(
    "error", [PySparkException("gone"), SparkConnectGrpcException("UNAVAILABLE: no answer")]
)
def test_failures_that_are_not_user_errors_stay_unchanged(error: PySparkException) -> None:
    assert find_cause(error) is None
    with pytest.raises(type(error)), translate_failures("orders_hourly"):
        raise error
