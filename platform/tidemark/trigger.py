"""Triggers, as definitions name them."""

from tidemark.define.trigger import Count, EachArrival, Every, Trigger

__all__ = ["Count", "EachArrival", "Every", "Trigger"]
