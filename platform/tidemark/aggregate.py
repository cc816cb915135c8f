"""Aggregates for definitions: `from tidemark import aggregate as agg`."""

from tidemark.define.aggregates import *
from tidemark.define.aggregates import __all__ as __all__
