"""Write a new project: the template's files with the chosen names."""

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tidemark.base.errors import DataError
from tidemark_streaming.starter.choices import Choices

_FILES = Path(__file__).parent
_SAMPLES = ("landing", "sample")
_UNWANTED = ("__pycache__", ".ruff_cache")


def write_project(choices: Choices, folder: Path, sample: Path | None = None) -> Path:
    """Write a project as a whole or not at all.

    Args:
        folder: the parent of the project's folder.
        sample: a file of events that replaces the template's own.

    Returns:
        The project's folder.
    """
    project = folder / choices.domain
    if project.exists() or project.is_symlink():
        raise DataError(
            f"'{project}' already exists: choose another name, or work in another folder."
        )
    try:
        scratch = Path(tempfile.mkdtemp(dir=folder, prefix=f".{choices.domain}-"))
        try:
            _fill_project(scratch, choices, sample)
            scratch.chmod(0o755)
            scratch.rename(project)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DataError(f"The project can't be written in '{folder}': {reason}.") from None
    return project


def _fill_project(project: Path, choices: Choices, sample: Path | None) -> None:
    for path, name in _list_templates(choices.kind):
        if sample is not None and name.parts[0] in _SAMPLES:
            continue
        target = project / _replace_names(str(name), choices)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = _replace_names(path.read_text(encoding="utf-8"), choices)
        target.write_text(_fill_in_choices(name, text, choices), encoding="utf-8")
    if sample is not None:
        target = project / "landing" / choices.events
        target.mkdir(parents=True)
        # The connector ignores files whose names begin with these characters.
        shutil.copyfile(sample, target / (sample.name.lstrip("._") or "1.csv"))


def _list_templates(kind: str) -> Iterator[tuple[Path, Path]]:
    """Yield the template's files with their paths in a project, sorted by path.

    The files are written in that order, and the connector ingests sample files in the order in
    which they were written.
    """
    for root in (_FILES / "project", _FILES / kind):
        for path in sorted(root.rglob("*")):
            if path.is_file() and not set(_UNWANTED) & set(path.parts):
                yield path, path.relative_to(root)


def _replace_names(text: str, choices: Choices) -> str:
    """Return a text with the chosen names instead of the template's. Parts of longer names are
    replaced too, as in `orders_hourly`."""
    names = choices.names_by_placeholder
    return re.sub(
        rf"(?<![A-Za-z])({'|'.join(names)})(?![A-Za-z])", lambda match: names[match[0]], text
    )


def _fill_in_choices(name: Path, text: str, choices: Choices) -> str:
    """Return the text of a file with the choices that are not names: the columns and the first
    day."""
    if name.name == "sources.py" and choices.columns is not None:
        # A value that happens to be an integer in the first file may be fractional in the next.
        kinds = {**choices.columns, choices.value: "DOUBLE"}
        # The header's own names, escaped so that they are only string literals.
        columns = _format_entries(kinds)
        rename = _format_entries(choices.rename)
        computed = _format_entries(choices.computed)
        further_arguments = ""
        if rename:
            further_arguments += f"    rename={{\n{rename}    }},\n"
        if computed:
            further_arguments += f"    computed={{\n{computed}    }},\n"
        return re.sub(
            r"(columns=\{\n).*?(    \},\n)",
            lambda match: f"{match[1]}{columns}{match[2]}{further_arguments}",
            text,
            flags=re.DOTALL,
        )
    if name.name == "connectors.py" and choices.options:
        return text.replace('{"header": True}', repr(dict(choices.options)).replace("'", '"'))
    if name.name == "definitions.py":
        return text.replace('start_date="2026-01-01"', f'start_date="{choices.begins}"')
    return text


def _format_entries(named: Mapping[str, str]) -> str:
    """Return the entries of a dict as lines of Python code."""
    lines = ""
    for name, value in named.items():
        key_literal = json.dumps(name, ensure_ascii=False)
        value_literal = json.dumps(value, ensure_ascii=False)
        lines += f"        {key_literal}: {value_literal},\n"
    return lines
