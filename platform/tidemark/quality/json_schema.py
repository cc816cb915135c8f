"""An expectation that each row's text matches a JSON schema. A text that is not JSON fails.

Great Expectations' own metric raises an error for a text that is not JSON, so one row would stop
the asset.
"""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import jsonschema
import pandas as pd
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.expectations.core.expect_column_values_to_match_json_schema import (
    ExpectColumnValuesToMatchJsonSchema,
)
from great_expectations.expectations.metrics.map_metric_provider.column_condition_partial import (
    column_condition_partial,
)
from great_expectations.expectations.metrics.map_metric_provider.column_map_metric_provider import (
    ColumnMapMetricProvider,
)

_METRIC = "column_values.match_json_schema_or_fail"


class MatchJsonSchemaMetric(ColumnMapMetricProvider):
    """The condition that a text matches a JSON schema; false for a text that is not JSON."""

    condition_metric_name = _METRIC
    condition_value_keys = ("json_schema",)

    @column_condition_partial(engine=PandasExecutionEngine)
    def _pandas(
        cls,  # noqa: N805 (the decorator makes it a class method)
        column: "pd.Series[Any]",
        json_schema: Mapping[str, Any],
        **_: object,
    ) -> "pd.Series[Any]":
        return column.map(partial(_matches_schema, schema=json_schema))


class ExpectColumnValuesToMatchJsonSchemaOrFail(ExpectColumnValuesToMatchJsonSchema):
    """An expectation like its base class, but a text that is not JSON fails without an error."""

    map_metric = _METRIC


def _matches_schema(text: str, schema: Mapping[str, Any]) -> bool:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    try:
        jsonschema.validate(value, schema)
    except jsonschema.ValidationError:
        return False
    return True
