"""Preparation of a source's rows by a function of the user, row by row."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from tidemark.base import user_code
from tidemark.base.arguments import list_parameters
from tidemark.base.errors import DefinitionError, TidemarkError
from tidemark.define.helper_columns import PREFIX, is_helper
from tidemark.define.source import Source, lookup_name
from tidemark.define.tidemark_columns import ARRIVAL_COLUMNS, LATE_COLUMNS
from tidemark.define.uniqueness import MARK

_CHECKED = "_checked"


@dataclass(frozen=True)
class Preparation:
    """A function that takes rows of a source's event log and returns prepared rows.

    Args:
        source: the source of the rows.
        function: takes the rows, and lookup tables of the source by their names.
        needed: the columns that the function's result must have, in addition to the event time and
            the columns of the arrival.
        marked: true if the rows have the column `MARK`, which shows whether a row is a duplicate.
    """

    asset: str
    source: Source
    function: Callable[..., DataFrame]
    needed: Sequence[str]
    marked: bool = False

    def __post_init__(self) -> None:
        lookup_names = [lookup_name(r) for r in self.source.lookups]
        unknown = [name for name in self.lookup_names if name not in lookup_names]
        if unknown:
            raise DefinitionError(
                f"Asset '{self.asset}': its function has the parameter '{unknown[0]}', which is "
                f"not a lookup table of source '{self.source.name}'; its lookup tables: "
                f"{', '.join(lookup_names) or 'none'}."
            )

    @property
    def lookup_names(self) -> list[str]:
        """The names of the lookup tables that the function takes in addition to the rows."""
        return list_parameters(f"Asset '{self.asset}'", self.function)[1:]

    def prepare_rows(
        self, rows: DataFrame, lookups: Mapping[str, DataFrame] | None = None
    ) -> DataFrame:
        """Return the prepared rows, after a check that they have the columns that are needed.

        Args:
            lookups: the tables that the function takes in addition to the rows, by name.
        """
        prepared = self._call_function(rows, lookups or {})
        if _CHECKED not in self.__dict__ or lookups:
            self._check_prepared(prepared.columns)
            # Reading the columns sends the query to the engine for analysis. Without lookup tables,
            # it is done only once: the function returns the same columns for the same source
            # columns. With lookup tables, it is done each time, as their columns may change.
            object.__setattr__(self, _CHECKED, True)
        return prepared

    def _call_function(self, rows: DataFrame, lookups: Mapping[str, DataFrame]) -> DataFrame:
        try:
            prepared: object = self.function(rows, **lookups)
        except TidemarkError:
            raise
        except Exception as error:
            where = user_code.find_place(error) or "an unknown location"
            raise DefinitionError(
                f"Asset '{self.asset}': its function failed at {where}: "
                f"{user_code.describe_exception(error)}."
            ) from error
        if not isinstance(prepared, DataFrame):
            hint = ""
            if prepared is None:
                hint = " Is its `return` missing?"
            raise DefinitionError(
                f"Asset '{self.asset}': its function must return a DataFrame (got "
                f"{type(prepared).__name__}).{hint}"
            )
        return prepared

    def _check_prepared(self, columns: Sequence[str]) -> None:
        marks = list[str]()
        if self.marked:
            marks.append(MARK)
        lowered = [c.lower() for c in columns]
        for column in columns:
            if is_helper(column) and column not in marks:
                raise DefinitionError(
                    f"Asset '{self.asset}': its function's result has a column '{column}', "
                    f"which begins with '{PREFIX}'. This prefix is reserved for Tidemark's helper "
                    "columns: rename the column."
                )
            if column.lower() in LATE_COLUMNS:
                raise DefinitionError(
                    f"Asset '{self.asset}': its function's result has a column '{column}', which "
                    "is reserved: Tidemark adds a column of this name to the late table. Give it "
                    f"another name, such as 'own_{column}'."
                )
            if lowered.count(column.lower()) > 1:
                raise DefinitionError(
                    f"Asset '{self.asset}': its function's result has the column '{column}' "
                    "twice (the engine ignores case). Drop one, or rename it."
                )
        needed = [self.source.event_time]
        needed += ARRIVAL_COLUMNS
        needed += marks
        needed += self.needed
        needed = list(dict.fromkeys(needed))
        missing = [c for c in needed if c not in columns]
        if missing:
            raise DefinitionError(
                f"Asset '{self.asset}': its function's result has no column '{missing[0]}'; "
                f"it has: {', '.join(columns)}. It must keep {', '.join(needed)}: add columns "
                "instead of selecting a few."
            )
