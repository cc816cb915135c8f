"""Great Expectations, asked by several threads of a process at once."""

from concurrent.futures import ThreadPoolExecutor

import pandas as pd

from tidemark.define.expectations.general import General
from tidemark.quality import between, gx


def test_each_thread_judges_its_own_rows() -> None:
    expectation = between("n", most=0)
    assert isinstance(expectation, General)

    def judged(number: int) -> set[int]:
        own = range(100 * number, 100 * number + 50)
        rows = pd.DataFrame({gx.ROW: [*own], "n": [1] * len(own)})
        (finding,) = gx.judge(rows, [expectation])
        return {row for row, _ in finding.rows or []} ^ {*own}

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(judged, range(40))] == [set()] * 40
