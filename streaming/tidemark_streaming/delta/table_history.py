"""Read the history of a Delta table: its versions, as far as they still exist."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tidemark.base.errors import DataError, summarize_error
from tidemark.store.committers.client_options import open_delta_table
from tidemark.store.committers.log_entry import version_id
from tidemark_streaming.delta.table_checks import NEW_NAME, TableChecks
from tidemark_streaming.delta.versions import Commit, VersionPart, read_commit


@dataclass(frozen=True)
class TableHistory:
    """The versions of the table at a path.

    Args:
        checks: the checks of the table, which have the options of its connector.
    """

    checks: TableChecks

    def open_table(self) -> DeltaTable:
        """Return the table at the path.

        Raises:
            DataError: there is no table, or it can't be read.
        """
        try:
            return open_delta_table(self.checks.path)
        except TableNotFoundError:
            raise DataError(
                f"There is no Delta table at '{self.checks.path}', from which source "
                f"'{self.checks.source.name}' reads: correct the connector's path, or create the "
                "table."
            ) from None
        except DeltaError as error:
            raise DataError(
                f"{self.checks.table_name} can't be read: {summarize_error(error)}. If the cause "
                "is a catalog that manages its commits, or an unsupported feature, read a plain "
                "copy (CREATE TABLE … AS SELECT)."
            ) from error

    def read_version(self, version: int, *, is_whole: bool) -> Commit | None:
        """Return the commit of a version; None if what is read of the version no longer exists.

        Args:
            is_whole: true to read all rows of the table as of the version.
        """
        part = VersionPart.ADDED
        if is_whole:
            part = VersionPart.WHOLE
        elif self.checks.change_feed:
            part = VersionPart.CHANGES
        return read_commit(self.checks.path, version, part)

    def has_version(self, position: dict[str, Any], head: int) -> bool:
        """Return whether the table still has the version that was read last.

        The table's own log retention may have removed the entry of that version. It then can't be
        compared.

        Args:
            head: the newest version of the table.
        """
        if position["version"] > head:
            return False
        current_id = version_id(self.checks.path, position["version"])
        return current_id is None or current_id == position["version_id"]

    def lost_error(self, versions: Sequence[int], head: int) -> DataError:
        """Return the error for consecutive versions that no longer exist.

        Args:
            head: the newest version of the table.
        """
        restart = ""
        for later in range(versions[-1] + 1, head + 1):
            if self.read_version(later, is_whole=True) is not None:
                restart = (
                    f" To read the whole table as of version {later} instead, set `start` to "
                    f"{later}{NEW_NAME}."
                )
                break
        return DataError(
            f"{self.checks.table_name} no longer has {name_versions(versions)}: VACUUM or the "
            "log retention deleted them. To continue without their rows, pass "
            f"--allow-data-loss.{restart}"
        )


def name_versions(versions: Sequence[int]) -> str:
    """Return consecutive versions as a text, such as `versions 3 to 5`."""
    first = versions[0]
    last = versions[-1]
    if first == last:
        return f"version {first}"
    return f"versions {first} to {last}"
