"""Compute fingerprints, which show whether two definitions compute, validate and publish the same.

A fingerprint is a hash of everything that an asset's result depends on, except its data. It is the
same in every process that has the same definition, including a worker that received the definition.
It changes with every part that affects a run. The asset's name and all descriptions do not count.

| part | hashed |
| --- | --- |
| a value: a window, a trigger, an expectation, … | its class and its fields |
| a user's function | its source, defaults, closure, and the module's names that it uses |
| a function of a library, including Tidemark | its name and closure: `mean("x")` encloses "x" |

The names that a function uses in its module are hashed in the same way if they are plain values or
functions of the function's own package. Docstrings, comments, annotations and line numbers are
ignored. The source is described by its syntax tree, which all versions of Python agree on
(`function_source`). If the source of the loaded code is unknown, for example because its file has
changed, the compiled code is hashed, which another minor version of Python compiles differently.
"""

import dis
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from tidemark.define.definition import Definition
from tidemark.define.identity.function_source import describe_source
from tidemark.define.rollup import base_transform
from tidemark.define.source import lookup_name
from tidemark.define.triggers.firings import Never

_LIBRARIES = {"tidemark", "pyspark", *sys.stdlib_module_names}
"""Packages whose functions and classes are identified by their names alone."""

_PLAIN = bool | int | float | complex | str | bytes | type(None) | type(...)


def compute_fingerprint(transform: Definition) -> str:
    """Return the fingerprint of a definition: twelve hexadecimal digits."""
    source = transform.source
    base = base_transform(transform)
    # The source's columns are left out: a log never changes the type of a column, and the
    # function's code names the columns that it uses.
    source_parts: list[object] = [source.name, source.event_time, used_lookups(transform)]
    # Without `max_future_skew`, nothing is added. Fingerprints that are older than this argument
    # therefore stay valid.
    if source.future_skew is not None:
        source_parts.append(source.future_skew)
    # The same holds for computed columns.
    if source.computed:
        source_parts.append(dict(source.computed))
    definition: dict[str, object] = {
        "source": source_parts,
        "function": base.function,
        "keys": transform.keys,
        "window": transform.window,
        "allowed lateness": transform.allowed_lateness,
        "trigger": transform.trigger,
        "accumulation": transform.accumulation,
        "aggregates": transform.aggregates,
        "expectations": transform.expectations,
        "deduplicate": None,
        "base": None,
    }
    if base is transform:
        definition["deduplicate"] = base.deduplicate
    else:
        definition["base"] = compute_fingerprint(base)
    return compute_digest(definition)


def used_lookups(definition: Definition) -> list[str]:
    """Return the lookup tables of the source that the function takes."""
    names = base_transform(definition).lookup_names
    return [lookup for lookup in definition.source.lookups if lookup_name(lookup) in names]


def compute_digest(part: object) -> str:
    """Return the hash of a part of a definition: twelve hexadecimal digits."""
    return _hash_parts(_Describer().describe_part(part))[:12]


class _Describer:
    """A converter from parts of a definition to JSON values that are the same in every process."""

    def __init__(self) -> None:
        self._within: list[int] = []
        self._functions: dict[int, str] = {}

    def describe_part(self, part: object) -> list[Any]:
        """Return a part as nested lists of plain JSON values."""
        if isinstance(part, _PLAIN):
            return [type(part).__name__, repr(part)]
        if id(part) in self._within:
            return ["itself", type(part).__name__]
        self._within.append(id(part))
        try:
            return self._describe_by_type(part)
        finally:
            self._within.pop()

    def _describe_by_type(self, part: object) -> list[Any]:
        match part:
            case Never():
                # `Never` has the hash of None: before the class existed, None had this meaning.
                return self.describe_part(None)
            case Mapping():
                items = [[self.describe_part(k), self.describe_part(v)] for k, v in part.items()]
                return ["mapping", *_sort_parts(items)]
            case Set():
                return ["set", *_sort_parts(self.describe_part(member) for member in part)]
            case list() | tuple():
                return ["sequence", *map(self.describe_part, part)]
            case FunctionType():
                # A helper function that many others use is converted only once.
                if id(part) not in self._functions:
                    self._functions[id(part)] = _hash_parts(self._describe_function(part))
                return ["function", self._functions[id(part)]]
            case CodeType():
                return self._describe_code(part, None)
            case MethodType():
                return [
                    "method",
                    self.describe_part(part.__func__),
                    self.describe_part(part.__self__),
                ]
            case partial():
                return ["partial", self.describe_part([part.func, part.args, part.keywords])]
            case re.Pattern():
                return ["pattern", repr(part.pattern), part.flags]
            case type() | BuiltinFunctionType() | ModuleType():
                return ["name", getattr(part, "__qualname__", part.__name__)]
            case _:
                return self._describe_object(part)

    def _describe_object(self, part: object) -> list[Any]:
        kind = type(part)
        attributes = getattr(part, "__dict__", None)
        if is_dataclass(part):
            attributes = dict[str, object]()
            for field in fields(part):
                if field.metadata.get("identifies", True):
                    attributes[field.name] = getattr(part, field.name)
        if not attributes and kind.__repr__ is not object.__repr__:
            attributes = repr(part)
        return [
            "object",
            kind.__qualname__,
            self.describe_part(attributes),
            self._describe_methods(kind),
        ]

    def _describe_methods(self, kind: type) -> list[Any]:
        """Return the methods of a user's class and of its base classes."""
        methods = list[tuple[str, FunctionType]]()
        for ancestor in kind.__mro__:
            if _package_name(ancestor) in _LIBRARIES:
                continue
            for name, member in vars(ancestor).items():
                function = member
                if isinstance(member, property):
                    function = member.fget
                is_special = name.startswith("__") and name != "__call__"
                if isinstance(function, FunctionType) and not is_special:
                    methods.append((name, function))
        return self.describe_part(methods)

    def _describe_function(self, function: FunctionType) -> list[Any]:
        enclosed = self.describe_part([cell.cell_contents for cell in function.__closure__ or ()])
        if _package_name(function) in _LIBRARIES:
            return [function.__qualname__, enclosed]
        names = set(_global_names(function.__code__))
        used_globals = dict[str, object]()
        for name, value in function.__globals__.items():
            if name in names and _is_hashed(value, function):
                used_globals[name] = value
        defaults = [function.__defaults__, function.__kwdefaults__]
        code = describe_source(function)
        if code is None:
            code = self._describe_code(function.__code__, function.__doc__)
        return [code, enclosed, self.describe_part(defaults), self.describe_part(used_globals)]

    def _describe_code(self, code: CodeType, docstring: str | None) -> list[Any]:
        # The first constant is the docstring, or None without a docstring.
        constants = code.co_consts[code.co_consts[:1] == (docstring,) :]
        names = [code.co_names, code.co_varnames, code.co_freevars, code.co_flags]
        text = [code.co_code.hex(), code.co_exceptiontable.hex()]
        return [text, self.describe_part(constants), self.describe_part(names)]


def _is_hashed(value: object, function: FunctionType) -> bool:
    """Return whether a value that a function uses from its module is hashed with the function."""
    if isinstance(value, FunctionType):
        return _package_name(value) == _package_name(function)
    plain = _PLAIN | Mapping | Set | Sequence | re.Pattern
    return isinstance(value, plain) or (is_dataclass(value) and not isinstance(value, type))


def _global_names(code: CodeType) -> Iterator[str]:
    """Yield the names that a function's code, and the code nested in it, looks up in its module."""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL":
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


def _package_name(part: FunctionType | type) -> str:
    return (part.__module__ or "").partition(".")[0]


def _sort_parts(parts: Iterable[list[Any]]) -> list[list[Any]]:
    return sorted(parts, key=json.dumps)


def _hash_parts(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
