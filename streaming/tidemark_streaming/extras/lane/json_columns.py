"""Decode JSON into columns with Spark's expressions, because Spark's real-time mode runs no Python.

A lane accepts a record only if the decoder of an ingest accepts it, and then with the same values:
the tests compare the two. Every other record is a dead letter.
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.define.helper_columns import helper
from tidemark_streaming.extras.lane import json_members
from tidemark_streaming.extras.lane.exact_values import value_of
from tidemark_streaming.payloads.payload import misfit_reason
from tidemark_streaming.payloads.text_values import TimeFormats

_NAMES, _TEXTS, _MEMBERS = helper("names"), helper("texts"), helper("members")


def decode_json(
    rows: DataFrame, text: Column, columns: Mapping[str, str], options: Mapping[str, str]
) -> DataFrame:
    """Return rows with `event`, a struct of the columns, and `reason`, why a text can't be decoded
    (else null).

    Args:
        text: null if the record has no value.
    """
    formats = TimeFormats.of(options)
    names, texts = F.col(_NAMES), F.col(_TEXTS)
    # Each step is a projection of its own, so that Spark computes its result only once.
    rows = rows.withColumns(
        {_NAMES: json_members.member_names(text), _TEXTS: json_members.member_texts(text)}
    )
    found = {name: json_members.member(name, names, texts) for name in columns}
    rows = rows.withColumn(_MEMBERS, _struct(found))
    written = {name: F.col(_MEMBERS)[name] for name in columns}
    values = {name: value_of(written[name], kind, formats) for name, kind in columns.items()}
    rows = rows.withColumn("event", _struct(values))
    misfits = (
        F.when(
            F.isnotnull(written[name]) & F.isnull(F.col("event")[name]), misfit_reason(name, kind)
        )
        for name, kind in columns.items()
    )
    fault = json_members.fault(text, names, texts, columns)
    rows = rows.withColumn("reason", F.when(F.isnotnull(text), F.coalesce(fault, *misfits)))
    return rows.drop(_NAMES, _TEXTS, _MEMBERS)


def _struct(columns: Mapping[str, Column]) -> Column:
    return F.struct(*(value.alias(name) for name, value in columns.items()))
