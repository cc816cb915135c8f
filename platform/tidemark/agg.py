"""Aggregates of definitions: `tm.agg.mean("delay")`."""

from tidemark.define.aggregates import *
from tidemark.define.aggregates import __all__ as __all__
