"""Describe what a function computes by its source, so that all versions of Python agree.

Each minor version of Python compiles the same source to other bytecode. The syntax tree of the
source stays the same: this module describes a function by it, without positions, docstrings,
annotations, and the parts that a fingerprint hashes as values (name, decorators, defaults).

A file may have changed since its module was loaded, but the loaded code is what runs. The source is
therefore compiled again, and counts only if the result equals the code of the function.

The module needs nothing but the standard library, because its test runs it in other versions of
Python.
"""

import ast
import hashlib
import json
import linecache
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType
from typing import Any

_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_Located = tuple[CodeType, list[Any]]
"""The code of a function, and the description of its source."""

_LEFT_OUT = frozenset({"annotation", "returns", "type_comment", "type_params", "ctx", "kind"})
"""The fields of nodes that do not affect results."""

_DESCRIBED = "__tidemark_source__"
"""The attribute with which a function carries its description into processes without its source,
such as a worker of the engine on another machine."""


def describe_source(function: Callable[..., object]) -> list[Any] | None:
    """Return the source of a function as nested lists of plain JSON values.

    Return None if the source is unknown, or is not that of the function's code.
    """
    code: CodeType = function.__code__
    identity = _hash_code(code)
    carried = getattr(function, _DESCRIBED, None)
    # A decorator may have copied the attribute of another function.
    if carried is not None and carried[0] == identity:
        return carried[1]
    described = _find_description(code, function.__globals__)
    if described is not None:
        setattr(function, _DESCRIBED, (identity, described))
    return described


def _find_description(code: CodeType, module: dict[str, Any]) -> list[Any] | None:
    for is_renewed in (False, True):
        if is_renewed:
            linecache.checkcache(code.co_filename)
        text = "".join(linecache.getlines(code.co_filename, module))
        for compiled, described in _functions_in(text):
            if compiled == code:
                return described
    return None


@lru_cache(maxsize=256)
def _functions_in(text: str) -> tuple[_Located, ...]:
    """Return all functions of a module whose source is unambiguous."""
    try:
        tree = ast.parse(text)
        compiled = compile(text, "", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return ()
    nodes = [node for node in ast.walk(tree) if isinstance(node, _FunctionNode)]
    located = list[_Located]()
    for code in _nested_codes(compiled):
        described = [_describe_function(node) for node in _select_nodes(nodes, code)]
        if described and all(description == described[0] for description in described):
            located.append((code, described[0]))
    return tuple(located)


def _nested_codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _nested_codes(constant)


def _select_nodes(nodes: list[_FunctionNode], code: CodeType) -> list[_FunctionNode]:
    """Return the innermost functions that can have been compiled to a code."""
    candidates = [node for node in nodes if _can_be_source(node, code)]
    innermost = list[_FunctionNode]()
    for node in candidates:
        contains_another = any(_is_within(candidate, node) for candidate in candidates)
        if not contains_another:
            innermost.append(node)
    return innermost or candidates


def _can_be_source(node: _FunctionNode, code: CodeType) -> bool:
    return (
        _compiled_name(node) == code.co_name
        and _first_line(node) == code.co_firstlineno
        and _contains_code(node, code)
    )


def _compiled_name(node: _FunctionNode) -> str:
    if isinstance(node, ast.Lambda):
        return "<lambda>"
    return node.name


def _first_line(node: _FunctionNode) -> int:
    first_line = node.lineno
    if not isinstance(node, ast.Lambda):
        for decorator in node.decorator_list:
            first_line = min(first_line, decorator.lineno)
    return first_line


def _contains_code(node: _FunctionNode, code: CodeType) -> bool:
    """Return whether all instructions of a code are from the source of a function."""
    start = _start_position(node)
    first_line = _first_line(node)
    if first_line != node.lineno:
        start = (first_line, 0)
    for line, end_line, column, end_column in code.co_positions():
        if line is None or end_line is None or column is None or end_column is None:
            continue
        # Instructions that begin a function have an empty range, which is not in the source.
        is_empty = (line, column) == (end_line, end_column)
        if not is_empty and not start <= (line, column) <= (end_line, end_column) <= _end_position(
            node
        ):
            return False
    return True


def _is_within(inner: _FunctionNode, outer: _FunctionNode) -> bool:
    return (
        inner is not outer
        and _start_position(outer) <= _start_position(inner)
        and _end_position(inner) <= _end_position(outer)
    )


def _start_position(node: _FunctionNode) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _end_position(node: _FunctionNode) -> tuple[int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset


def _describe_function(node: _FunctionNode) -> list[Any]:
    """Describe a function without its name, decorators and defaults."""
    parameters = node.args
    names = list[list[str]]()
    for group in (parameters.posonlyargs, parameters.args, parameters.kwonlyargs):
        names.append([parameter.arg for parameter in group])
    variadic = [part and part.arg for part in (parameters.vararg, parameters.kwarg)]
    if isinstance(node, ast.Lambda):
        # The same as of a function that returns the value.
        body = [["Return", ["value", _describe_part(node.body)]]]
        return ["function", names, variadic, body]
    kind = "function"
    if isinstance(node, ast.AsyncFunctionDef):
        kind = "async"
    return [kind, names, variadic, _describe_body(node.body)]


def _describe_part(part: object) -> Any:  # noqa: ANN401 (plain JSON values)
    if isinstance(part, ast.JoinedStr):
        return ["JoinedStr", *_describe_pieces(part.values)]
    if isinstance(part, ast.AST):
        fields = list[Any]()
        for name, value in ast.iter_fields(part):
            described = _describe_field(name, value)
            # Versions of Python add fields that are empty in the syntax of earlier ones.
            if name not in _LEFT_OUT and described not in (None, []):
                fields.append([name, described])
        return [type(part).__name__, *fields]
    if isinstance(part, list):
        return [_describe_part(element) for element in part]
    if part is None or isinstance(part, str):
        return part
    return [type(part).__name__, repr(part)]


def _describe_field(name: str, value: object) -> Any:  # noqa: ANN401 (plain JSON values)
    if name == "body" and isinstance(value, list):
        return _describe_body(value)
    return _describe_part(value)


def _describe_pieces(values: list[ast.expr]) -> list[Any]:
    """Describe an f-string. Versions of Python divide the texts in it into different pieces."""
    pieces = list[Any]()
    text = ""
    for value in values:
        if isinstance(value, ast.Constant):
            text += str(value.value)
            continue
        pieces += [text, _describe_part(value)]
        text = ""
    pieces.append(text)
    return pieces


def _describe_body(statements: list[ast.stmt]) -> list[Any]:
    """Describe statements without a docstring, which is a text that nothing reads."""
    return [_describe_part(statement) for statement in statements if not _is_text(statement)]


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _hash_code(code: CodeType) -> str:
    """Return a hash of a code that is the same in all processes of one version of Python."""

    def describe_code(nested_code: CodeType) -> list[Any]:
        constants = list[Any]()
        for constant in nested_code.co_consts:
            if isinstance(constant, CodeType):
                constants.append(describe_code(constant))
            else:
                constants.append(_describe_constant(constant))
        names = list(nested_code.co_names)
        for group in (nested_code.co_varnames, nested_code.co_freevars):
            # The empty name separates the groups.
            names.append("")
            names += group
        return [nested_code.co_code.hex(), constants, names, nested_code.co_firstlineno]

    return hashlib.sha256(json.dumps(describe_code(code)).encode()).hexdigest()


def _describe_constant(constant: object) -> str:
    # The order of a set depends on the process.
    if isinstance(constant, frozenset):
        return f"frozenset {sorted(map(repr, constant))}"
    return f"{type(constant).__name__} {constant!r}"
