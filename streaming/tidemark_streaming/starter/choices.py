"""The user's choices for a new project: its names, and the kind of its source."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from keyword import iskeyword
from typing import Literal

from tidemark.base.errors import DefinitionError
from tidemark.define.tidemark_columns import EVENT_TABLES, WINDOW_TABLES, find_table

_Kind = Literal["files", "kafka"]

TEMPLATE = {
    "domain": "shop",
    "events": "orders",
    "time": "ordered_at",
    "key": "city",
    "value": "amount",
}
"""The names in the template's files, which `write` replaces by the chosen names."""
_FOLDERS = ("dbt_project", "landing", "marts", "sample", "scenarios", "send", "tests")
"""Names that the project's package can't have: those of files and folders next to the package, and
`marts`, which is a code location in Dagster."""
_USED_NAMES = ("hours", "ingestion", "order", "presentation", "tm")
"""Names that the project's modules already use."""
_COLUMNS = ("counted", "day", "highest", "mean", "total")
"""Names of columns that the template computes."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,79}")


@dataclass(frozen=True)
class Choices:
    """The names in a project.

    Args:
        domain: the project, its folder and its package.
        events: the name of the source, and the prefix of the names of its assets.
        time: the column with the event time.
        key: the text column by which windows are computed.
        value: the numeric column whose sum, mean and maximum are computed.
        kind: the kind of the source: `files` or `kafka`.
        columns: the types of all columns, by name and in order; None for time, key and value only.
        rename: column names by field name, for fields whose column has another name.
        computed: SQL expressions of columns that are computed from others, by name.
        options: the options of the connector.
        begins: the day of the first partition in Dagster, as `2026-01-31`.
    """

    domain: str
    events: str = TEMPLATE["events"]
    time: str = TEMPLATE["time"]
    key: str = TEMPLATE["key"]
    value: str = TEMPLATE["value"]
    kind: _Kind = "files"
    columns: Mapping[str, str] | None = None
    rename: Mapping[str, str] = field(default_factory=dict[str, str])
    computed: Mapping[str, str] = field(default_factory=dict[str, str])
    options: Mapping[str, str | bool] = field(default_factory=dict[str, str | bool])
    begins: str = "2026-01-01"

    def __post_init__(self) -> None:
        check_domain(self.domain)
        check_events(self.events)
        columns = [c.lower() for c in (self.time, self.key, self.value)]
        for column in (self.time, self.key, self.value):
            check_column(column)
            if columns.count(column.lower()) > 1:
                raise DefinitionError(
                    "--time, --key and --value must be three different columns (got "
                    f"'{self.time}', '{self.key}' and '{self.value}')."
                )

    @property
    def names_by_placeholder(self) -> dict[str, str]:
        """The chosen names, each by the template's name that it replaces."""
        return {old: getattr(self, name) for name, old in TEMPLATE.items()}


def check_domain(name: str) -> None:
    """Refuse a name that the project's package can't have."""
    _check_name("project", name)
    if name in _FOLDERS:
        raise _name_error("project", name, "a folder of the project has that name")
    if name in sys.stdlib_module_names or find_spec(name) is not None:
        raise _name_error("project", name, "a Python module of that name already exists")


def check_events(name: str) -> None:
    """Refuse a name that a source can't have, or that the project's code uses otherwise."""
    _check_name("source of events", name)
    if name in _USED_NAMES:
        raise _name_error("source of events", name, "the project's code already uses that name")


def check_column(name: str) -> None:
    """Refuse an invalid column name, or one that the project's tables already use."""
    reason = name_problem(name)
    if reason is not None:
        raise _name_error("column", name, reason)


def name_problem(column: str) -> str | None:
    """Return why a column can't be the time, key or value of a project; None if it can."""
    if not _COLUMN.fullmatch(column):
        return "use letters, digits and '_', and do not begin with a digit"
    if column.lower() in _COLUMNS or find_table(column, WINDOW_TABLES, EVENT_TABLES):
        return "the project's tables already have a column of that name"
    return None


def _check_name(kind: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise _name_error(
            kind, name, "use up to 40 lowercase letters, digits and '_', and begin with a letter"
        )
    if iskeyword(name):
        raise _name_error(kind, name, "it is a Python keyword")


def _name_error(kind: str, name: str, why: str) -> DefinitionError:
    return DefinitionError(f"'{name}' is not a valid name for a {kind}: {why}.")
