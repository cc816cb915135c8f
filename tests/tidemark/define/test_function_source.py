"""Functions are described by their source, in the same way by each version of Python."""

import hashlib
import importlib.util
import json
import linecache
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark import cloudpickle

from tidemark.define.identity import function_source
from tidemark.define.identity.fingerprint import compute_digest
from tidemark.define.identity.function_source import describe_source

ZOO = '''
import functools

FACTOR = 3


def plain(rows, *more, scale: int = 2, **named) -> int:
    """A docstring."""
    total = sum(row * scale for row in rows if row > FACTOR)
    return total + len(more) + 60 * 60


def comprehensions(rows):
    squares = {row: row**2 for row in rows}
    kept = {key for key in squares if key % 2}
    return [squares[key] for key in kept], [[a for a in b] for b in [[1], [2]]]


def texts(name):
    return f"{name!r:>{10}} and {name=}" "more" + b"".decode() + rf"{name}\\d"


def branches(value):
    match value:
        case {"a": [1, *rest], **others} if rest:
            return others
        case int() | float() as number:
            return number
        case _:
            pass
    try:
        with open(value) as first, open(value):
            while (line := first.readline()) != "":
                yield line
    except* (OSError, ValueError) as group:
        raise RuntimeError from group
    else:
        assert value, "none"
    finally:
        del value


pair = (lambda x: x + 1), (lambda x: x + 2)
nested = lambda x: (lambda y: x + y)


@functools.cache
def decorated(rows, key=lambda row: -row):
    class Local:
        """Another docstring."""

        def method(self):
            return rows

    async def later():
        async for row in rows:
            yield await row

    return sorted(rows, key=key), Local, later, -1 if rows else None
'''
NAMES = ("plain", "comprehensions", "texts", "branches", "decorated", "first", "second", "nested")

SCRIPT = f"""
import hashlib, importlib.util, json, sys

def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module

described, zoo = load(sys.argv[1], "function_source"), load(sys.argv[2], "zoo")
zoo.first, zoo.second = zoo.pair
for name in {NAMES!r}:
    function = getattr(zoo, name)
    found = described.describe_source(getattr(function, "__wrapped__", function))
    print(name, found and hashlib.sha256(json.dumps(found).encode()).hexdigest()[:12])
"""


def interpreters() -> list[str]:
    """Return all versions of Python on this machine that Tidemark supports, this one first."""
    found = [sys.executable]
    installed = sorted(Path.home().glob(".pyenv/versions/3.*/bin/python"))
    named = [shutil.which(f"python3.{minor}") for minor in range(11, 16)]
    for python in (*map(str, installed), *filter(None, named)):
        version = subprocess.run(
            [python, "-c", "import sys; print(sys.version_info >= (3, 11))"],
            capture_output=True,
            check=False,
        )
        if version.stdout.strip() == b"True":
            found.append(python)
    return found


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    path = tmp_path / "zoo.py"
    path.write_text(ZOO)
    return path


def load(path: Path, name: str = "zoo") -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def hashed(function: Callable[..., Any]) -> str | None:
    described = describe_source(function)
    if described is None:
        return None
    return hashlib.sha256(json.dumps(described).encode()).hexdigest()[:12]


DIGESTS = {
    "plain": "6f81a5324fca",
    "comprehensions": "4440cbfd4928",
    "texts": "b34fb754fe4c",
    "branches": "ca2505157ecc",
    "decorated": "4839eb21b683",
    "first": "839008a9d92a",
    "second": "c1b87a99c98f",
    "nested": "1b3eb463bc94",
}


def test_each_version_of_python_describes_functions_in_the_same_way(zoo: Path) -> None:
    """The constants are for versions that this machine does not have."""
    for python in interpreters():
        printed = subprocess.run(
            [python, "-c", SCRIPT, str(function_source.__file__), str(zoo)],
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        assert dict(line.split() for line in printed.splitlines()) == DIGESTS, python


CHANGES = (
    ("row > FACTOR", "row >= FACTOR"),
    ("60 * 60", "60 * 61"),
    ("x + 2", "x + 3"),
    ("x + y", "x - y"),
    ("squares[key] for", "squares[key + 0] for"),
    ("(OSError, ValueError)", "(OSError, KeyError)"),
    ('"none"', '"nothing"'),
    ("return rows", "return [rows]"),
    ("await row", "row"),
    ("**named", "**others"),
    ("1, *rest", "2, *rest"),
    ("!r:", "!s:"),
)
WITHOUT_EFFECT = (
    ("A docstring.", "Another text."),
    ("Another docstring.", "No."),
    (": int = 2", ": float = 2"),
    (" -> int", ""),
    ("    total =", "    # A comment.\n\n    total  ="),
    ("FACTOR = 3", "FACTOR = 3\n\n\nOTHER = 1"),
    ("@functools.cache", "@functools.lru_cache"),
)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_code_changes_one_description(
    zoo: Path, tmp_path: Path, change: tuple[str, str]
) -> None:
    other = tmp_path / "changed.py"
    assert ZOO.count(change[0]) == 1
    other.write_text(ZOO.replace(*change))
    assert len(differing(load(zoo), load(other))) == 1


@pytest.mark.parametrize("change", WITHOUT_EFFECT)
def test_a_change_without_effect_changes_no_description(
    zoo: Path, tmp_path: Path, change: tuple[str, str]
) -> None:
    other = tmp_path / "changed.py"
    assert change[0] in ZOO
    other.write_text(ZOO.replace(*change))
    assert differing(load(zoo), load(other)) == []


def functions_of(module: ModuleType) -> dict[str, Callable[..., Any]]:
    first, second = module.pair
    named = {**vars(module), "first": first, "second": second}
    functions = {name: named[name] for name in NAMES}
    return {name: getattr(f, "__wrapped__", f) for name, f in functions.items()}


def differing(module: ModuleType, other: ModuleType) -> list[str]:
    functions, others = functions_of(module), functions_of(other)
    described = {name: (hashed(functions[name]), hashed(others[name])) for name in NAMES}
    assert all(before and after for before, after in described.values())
    return [name for name, (before, after) in described.items() if before != after]


def test_a_file_that_has_changed_since_it_was_loaded_does_not_count(zoo: Path) -> None:
    plain = load(zoo).plain
    zoo.write_text(ZOO.replace("60 * 60", "60 * 70"))
    linecache.clearcache()
    assert describe_source(plain) is None
    changed = load(zoo).plain
    assert compute_digest(plain) != compute_digest(changed)


def test_a_sent_function_is_described_where_its_source_is_missing(zoo: Path) -> None:
    functions = functions_of(load(zoo))
    expected = {name: hashed(function) for name, function in functions.items()}
    sent = cloudpickle.dumps(functions)
    zoo.unlink()
    linecache.clearcache()
    received = cloudpickle.loads(sent)
    assert {name: hashed(function) for name, function in received.items()} == expected


def test_a_wrapper_is_not_described_as_the_function_that_it_wraps(tmp_path: Path) -> None:
    path = tmp_path / "wrapping.py"
    path.write_text(
        "from functools import wraps\n"
        "def inner(x):\n    return x\n"
        "def wrap(f):\n"
        "    @wraps(f)\n    def outer(x):\n        return f(x) + 1\n    return outer\n"
    )
    module = load(path, "wrapping")
    described = hashed(module.inner)
    assert described is not None
    assert hashed(module.wrap(module.inner)) not in (None, described)
