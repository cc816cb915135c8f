"""Events that are written as text: JSON objects and lines of CSV. The engine parses them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.define.helper_columns import helper
from tidemark_streaming.payloads.payload import given

CORRUPT = helper("corrupt")
"""The column with the text that does not fit."""


@dataclass(frozen=True)
class Text:
    """Parses events.

    Args:
        format: json, an object with the columns; or csv, a line with the columns in this order.
        columns: their names and Spark DDL types.
        options: the engine's options of the format.
    """

    format: Literal["csv", "json"]
    columns: Mapping[str, str]
    options: Mapping[str, str | bool]

    @property
    def schema(self) -> str:
        """The columns, and `CORRUPT`: the text where it does not fit them, else null."""
        return _ddl({**self.columns, CORRUPT: "STRING"})

    @property
    def told(self) -> dict[str, str]:
        """What the engine is told of the format."""
        own = {"enforceSchema": "false", "escape": '"'} if self.format == "csv" else {}
        given = {k: str(v).lower() if isinstance(v, bool) else v for k, v in self.options.items()}
        return {**own, **given, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}

    def decode(self, rows: DataFrame, text: Column) -> DataFrame:
        """Rows with `event`, the columns in a struct, null where there is no text; and `reason`,
        why a text is not decoded, else null."""
        rows = rows.withColumn("event", self._parse(text, self.schema))
        corrupt = F.coalesce(f"event.{CORRUPT}", F.when(F.isnull("event"), text))
        return rows.withColumn("reason", self.reason(corrupt, "event."))

    def reason(self, corrupt: Column | None = None, within: str = "") -> Column:
        """Why a text does not fit the columns, in a sentence; null without a text.

        Args:
            corrupt: the text; by default the column `CORRUPT`.
            within: where the columns are that were parsed: null is what does not fit.
        """
        text = F.col(CORRUPT) if corrupt is None else corrupt
        plain = self._parse(text, _ddl(dict.fromkeys(self.columns, "STRING")))
        misfits = [
            F.when(
                plain[name].isNotNull() & F.isnull(f"{within}`{name}`"),
                F.lit(f"The field '{name}' is no {kind.upper()}."),
            )
            for name, kind in self.columns.items()
        ]
        otherwise = (
            "It is no JSON object."
            if self.format == "json"
            else f"It is no line of {len(self.columns)} fields."
        )
        return F.when(text.isNotNull(), F.coalesce(*misfits, F.lit(otherwise)))

    def _parse(self, text: Column, schema: str) -> Column:
        parse = F.from_json if self.format == "json" else F.from_csv
        return parse(text, schema, self.told)


@dataclass(frozen=True)
class Json:
    """JSON, one object in each value, whose fields are the columns of their names.

    Args:
        options: the engine's options of JSON, such as `timestampFormat`.
    """

    options: Mapping[str, str] = field(default_factory=dict)

    def decode(
        self, spark: SparkSession, records: pa.Table, columns: Mapping[str, str]
    ) -> DataFrame:
        text = F.col("value").cast("string")
        return Text("json", columns, self.options).decode(given(spark, records), text)


def _ddl(columns: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
