"""If all rows fail on one column, the source stops; any other failure gives dead letters."""

from dataclasses import replace
from pathlib import Path

import pytest

from helpers.data.landing import HEADER, SOURCE, connector, land, log_rows
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.ingest.arrival_facts import (
    MANY_MISFITS,
    ColumnChangedError,
    Facts,
    check_columns,
)
from tidemark_streaming.ingest.ingest import ingest

CHANGED = Facts(dead_letters=MANY_MISFITS, misfit="The field 'n' is not a valid INT.")


@pytest.mark.parametrize(
    "facts",
    [
        replace(CHANGED, dead_letters=MANY_MISFITS - 1),
        replace(CHANGED, rows=1),
        replace(CHANGED, misfit=None),
        replace(CHANGED, misfit="The record is not a JSON object."),
        Facts(rows=MANY_MISFITS),
    ],
)
def test_other_failures_do_not_stop_the_source(facts: Facts) -> None:
    check_columns("clicks", {0: facts})


def test_the_error_has_the_first_changed_arrival() -> None:
    with pytest.raises(
        ColumnChangedError, match=r"fail on one column: The field 'n' is not a valid INT\."
    ) as told:
        check_columns("clicks", {3: CHANGED, 1: Facts(rows=5), 2: CHANGED})
    assert told.value.before == 2


def test_a_file_with_a_changed_type_waits_until_accepted(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    land(tmp_path, "0.csv", HEADER + "2023-11-14,a,1\n", 0)
    land(tmp_path, "1.csv", HEADER + "2023-11-14,a,x\n" * MANY_MISFITS, 1)
    files = connector(tmp_path)
    with pytest.raises(ColumnChangedError, match="The field 'value' is not a valid INT"):
        list(ingest(warehouse, files, batch=None))
    assert len(log_rows(warehouse)) == 1
    (commit,) = ingest(warehouse, replace(files, accept_change=True))
    assert commit.arrivals[0].dead_letters == MANY_MISFITS
    assert warehouse.take(SOURCE.dead_letters_table).num_rows == MANY_MISFITS
