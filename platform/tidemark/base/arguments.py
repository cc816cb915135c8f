"""Check arguments of the definition API against its annotations.

A wrong argument raises a `DefinitionError` that names the function, the parameter, the accepted
type and the actual value. Only arguments that the caller passes are checked, and only their types;
the function itself checks their values. A parameter with the type `determinism.Sql` accepts only
deterministic SQL expressions.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from tidemark.base.determinism import check_deterministic, list_sql
from tidemark.base.errors import DefinitionError

_P = ParamSpec("_P")
_R = TypeVar("_R")
_C = TypeVar("_C", bound=type)

_NAMES = {
    str: ("a string", "strings"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("True or False", "True or False"),
    NoneType: ("None", "None"),
    timedelta: ("a timedelta", "timedeltas"),
}
_SHOWN = 60


def check_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function of the definition API to check the arguments of each call."""

    @functools.wraps(function)
    def checked_call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        _check_call(function, function.__name__, args, kwargs)
        return function(*args, **kwargs)

    return checked_call


def checked_class(kind: _C) -> _C:
    """Decorate a class of the definition API to check the arguments of its constructor."""
    init = kind.__init__

    @functools.wraps(init)
    def checked_init(self: object, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 (of any class)
        # The constructor of a subclass may have other parameters.
        if type(self) is kind:
            _check_call(init, kind.__name__, (self, *args), kwargs)
        init(self, *args, **kwargs)

    kind.__init__ = checked_init
    return kind


def list_parameters(owner: str, function: Callable[..., object]) -> list[str]:
    """Return the names of the parameters of a user's function. The first parameter takes the rows.

    Args:
        owner: the owner of the function, as in `Asset 'orders_hourly'`.

    Raises:
        DefinitionError: the function has no parameters.
    """
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        names = []
    if not names:
        raise DefinitionError(
            f"{owner}: its function must have a parameter for the rows, as in `def prepare(rows)` "
            f"(got {_describe_value(function)})."
        )
    return names


def _check_call(
    function: Callable[..., object], name: str, args: tuple[object, ...], kwargs: Mapping[str, Any]
) -> None:
    signature, hints = _read_signature(function)
    try:
        arguments = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise _mismatch_error(name, signature, kwargs, str(error)) from None
    for parameter, argument in arguments.items():
        if parameter not in hints:
            continue
        for label, value in _split_argument(signature.parameters[parameter], argument):
            _check_value(f"{name}: {label}", value, hints[parameter])


def _split_argument(parameter: inspect.Parameter, argument: Any) -> list[tuple[str, object]]:  # noqa: ANN401 (of any function)
    """Return the name of an argument, with its value; several for `*args` and `**kwargs`."""
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return list(argument.items())
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return [(parameter.name, value) for value in argument]
    return [(parameter.name, argument)]


def _check_value(label: str, value: object, hint: Any) -> None:  # noqa: ANN401 (an annotation)
    """Refuse a value that does not fit an annotation, or that is not deterministic as SQL."""
    if not _fits_hint(value, hint):
        raise DefinitionError(
            f"{label} must be {_describe_hint(hint)} "
            f"(got {_describe_value(value)}).{_suggest_fix(value, hint)}"
        )
    for sql in list_sql(value, hint):
        check_deterministic(label, sql)


@functools.cache
def _read_signature(function: Callable[..., object]) -> tuple[inspect.Signature, Mapping[str, Any]]:
    return inspect.signature(function), get_type_hints(function, include_extras=True)


def _mismatch_error(
    name: str, signature: inspect.Signature, kwargs: Mapping[str, object], error: str
) -> DefinitionError:
    """Return the error for a call that does not match a signature."""
    parameters = [p for p in signature.parameters if p != "self"]
    if parameters:
        listed = f"Its parameters are {', '.join(parameters)}."
    else:
        listed = "It takes no parameters."
    unknown = next((key for key in kwargs if key not in parameters), None)
    if unknown is not None:
        close = get_close_matches(unknown, parameters, n=1)
        meant = f" Did you mean '{close[0]}'?" if close else ""
        return DefinitionError(f"{name} has no parameter '{unknown}'. {listed}{meant}")
    return DefinitionError(f"{name}: {error}. {listed}")


def _fits_hint(value: object, hint: Any) -> bool:  # noqa: ANN401 (an annotation)
    origin = get_origin(hint)
    parts = get_args(hint)
    if origin is Annotated:
        return _fits_hint(value, parts[0])
    if hint is None or hint is NoneType:
        return value is None
    if origin in (Union, UnionType):
        return any(_fits_hint(value, part) for part in parts)
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    kind = origin or hint
    if kind is Callable:
        return callable(value)
    if not isinstance(kind, type):
        return True
    if getattr(kind, "_is_protocol", False):
        return _follows_protocol(value, kind)
    if not isinstance(value, kind):
        return False
    if issubclass(kind, Mapping) and isinstance(value, Mapping):
        return _entries_fit(value, parts)
    if issubclass(kind, Sequence) and kind is not str and isinstance(value, Sequence):
        return _items_fit(value, parts)
    return True


def _follows_protocol(value: object, protocol: type) -> bool:
    if protocol in inspect.getmro(type(value)):
        return True
    if isinstance(value, type):
        # A class has the members of its objects.
        return False
    members = [name for name in vars(protocol) if not name.startswith("_")]
    return all(hasattr(value, name) for name in members)


def _entries_fit(mapping: Mapping[Any, Any], parts: tuple[Any, ...]) -> bool:
    """Return whether keys and values fit the annotations `parts`; an empty tuple allows any."""
    if not parts:
        return True
    key_hint, value_hint = parts
    for key, item in mapping.items():
        if not _fits_hint(key, key_hint) or not _fits_hint(item, value_hint):
            return False
    return True


def _items_fit(items: Sequence[Any], parts: tuple[Any, ...]) -> bool:
    """Return whether items fit the annotation in `parts`; an empty tuple allows any."""
    if isinstance(items, str | bytes):
        return False
    hints = [part for part in parts if part is not ...]
    return not hints or all(_fits_hint(item, hints[0]) for item in items)


def _describe_hint(hint: Any, *, many: bool = False) -> str:  # noqa: ANN401 (an annotation)
    """Return the values that an annotation accepts, in plain words."""
    origin = get_origin(hint)
    parts = get_args(hint)
    if origin is Annotated:
        return _describe_hint(parts[0], many=many)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_describe_hint(part, many=many) for part in parts))
    if origin is Literal:
        return f"one of {', '.join(repr(part) for part in parts)}"
    kind = NoneType if hint is None else origin or hint
    if kind in _NAMES:
        return _NAMES[kind][many]
    if kind is Callable:
        return "functions" if many else "a function"
    if not isinstance(kind, type):
        return "any value"
    if issubclass(kind, Mapping):
        key, item = parts or (str, object)
        return (
            f"a mapping from {_describe_hint(key, many=True)} to {_describe_hint(item, many=True)}"
        )
    if issubclass(kind, Sequence):
        items = [p for p in parts if p is not ...] or [object]
        return f"a list of {_describe_hint(items[0], many=True)}"
    if kind is object:
        return "objects" if many else "an object"
    if many:
        return f"{kind.__name__} objects"
    return f"a {kind.__name__}"


def _describe_value(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__} itself"
    if inspect.isroutine(value):
        return f"the function {value.__name__}"
    try:
        text = " ".join(repr(value).split())
    except Exception:
        text = f"an object of type {type(value).__name__}"
    if len(text) <= _SHOWN:
        return text
    return f"{text[: _SHOWN - 1]}…"


def _suggest_fix(value: object, hint: Any) -> str:  # noqa: ANN401 (an annotation)
    """Return how to fix a likely mistake. Return an empty string if no mistake is likely."""
    if isinstance(value, str) and _fits_hint([value], hint):
        return f" Write [{value!r}]."
    if isinstance(value, type) and hint in value.__mro__:
        return f" Write {value.__name__}(…)."
    return ""
