"""Triggers for definitions: `from tidemark.trigger import Every, Trigger`."""

from tidemark.define.triggers.trigger import Count, EachArrival, Every, Never, Trigger

__all__ = ["Count", "EachArrival", "Every", "Never", "Trigger"]
