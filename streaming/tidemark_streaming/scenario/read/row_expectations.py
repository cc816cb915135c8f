"""Parse the expectations of published rows: `- between: {column: revenue, min_value: 0}`."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace

from tidemark import expect
from tidemark.define.expectations.expectation import Expectation
from tidemark.define.transform import WindowedTransform
from tidemark_streaming.scenario.read.reader import Node


def _list_functions() -> dict[str, Callable[..., Expectation]]:
    functions = dict[str, Callable[..., Expectation]]()
    for name in expect.__all__:
        function = getattr(expect, name)
        # The module also has the class and the levels of expectations.
        if inspect.isfunction(function):
            functions[name] = function
    return functions


_FUNCTIONS: Mapping[str, Callable[..., Expectation]] = _list_functions()
"""The functions of `tidemark.expect`, which have the same names and arguments here."""

_NAMES = tuple(_FUNCTIONS)


def add_expectations(node: Node, windowed: WindowedTransform) -> WindowedTransform:
    """Return a transform with the expectations of a list."""
    expectations = list[Expectation]()
    for item in node.read_items("'expectations'"):
        expectations.append(_read_expectation(item))
        with item.locate_errors():
            # Checks the expectation, and that it is not given twice.
            windowed = replace(windowed, expectations=tuple(expectations))
    return windowed


def _read_expectation(node: Node) -> Expectation:
    if not node.is_mapping:
        name = node.read_word("an expectation", _NAMES)
        arguments = dict[str, object]()
    else:
        name, values = node.read_choice("an expectation", _NAMES)
        arguments = _read_arguments(name, values)
    with node.locate_errors():
        return _FUNCTIONS[name](**arguments)


def _read_arguments(name: str, node: Node) -> dict[str, object]:
    if not node.is_mapping:
        raise node.error(
            f"the arguments of {name} must be a mapping, as in {{column: revenue}} (got {node})."
        )
    arguments = dict[str, object]()
    for key, value in node.read_entries(f"the arguments of {name}"):
        arguments[key.read_text("an argument")] = value.plain_value
    return arguments
