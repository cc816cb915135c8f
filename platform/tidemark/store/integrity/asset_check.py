"""Find the damage to the tables of an asset, and to the validation results of all assets."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tidemark.base import thresholds
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import MARKER
from tidemark.define.tables import CHECKS, LEDGER
from tidemark.store.commits import rollup_generation
from tidemark.store.commits.commit_info import StateCommit, drop_superseded
from tidemark.store.commits.conditions import number_in
from tidemark.store.commits.kinds import from_json
from tidemark.store.committers import file_list
from tidemark.store.committers.open_tables import OpenTables
from tidemark.store.integrity.checked_tables import CheckedTables, describe_lag
from tidemark.store.integrity.damage import Damage
from tidemark.store.integrity.vouching import STATE_APP, version_app


@dataclass(frozen=True)
class AssetCheck:
    """Finds damage to the tables of one asset."""

    tables: CheckedTables
    definition: Definition

    def find_damage(self, ledger: DeltaTable | None) -> Iterator[Damage]:
        """Yield the damage to the asset's tables.

        Args:
            ledger: None if it does not exist or is damaged.
        """
        name = self.definition.name
        state_table = self.definition.state_table
        other_tables = [table for table in self.definition.own_tables if table != state_table]
        for table in reversed(other_tables):
            self.tables.open_table(table, name)
        self.tables.open_table(CHECKS)
        state = self.tables.open_table(state_table, self.definition.rolled_up_name or name)
        app = self.find_app()
        if state is None or app is None:
            # The asset was dropped, or its first run is incomplete: the next run recomputes all.
            return
        if ledger is not None:
            for table in self.definition.own_tables:
                yield from self.tables.find_lost_commits(ledger, LEDGER, app, table, name)
        if self.lacks_release(app):
            published_table = self.definition.published_table
            version = self.tables.opened_version(published_table)
            yield Damage(
                published_table,
                f"lacks windows that were released from '{self.definition.quarantine_table}' "
                f"(version {version})",
                name,
            )
        if self.definition.rolled_up_name is None:
            yield from self._find_lost_state(state, app, [*other_tables, LEDGER, CHECKS], ledger)

    def _find_lost_state(
        self, state: DeltaTable, app: str, written_tables: Iterable[str], ledger: DeltaTable | None
    ) -> Iterator[Damage]:
        """Yield the damage if the state and the tables that runs write after it do not agree."""
        name = self.definition.name
        commit_number = _find_newest_number(state)
        for table in written_tables:
            written_number = self.tables.transaction_version(table, app)
            if written_number is not None and written_number > commit_number:
                yield Damage(
                    self.definition.state_table,
                    f"has commits up to number {commit_number} (version {state.version()}), "
                    f"but '{table}' was written by commit {written_number}",
                    name,
                )
                return
        published_number = None
        if ledger is not None:
            published_number = ledger.transaction_version(app)
        if commit_number - _number_or_start(published_number) > 1:
            yield from self._find_unpublished(state, app, commit_number)

    def lacks_release(self, app: str) -> bool:
        """Return whether the published table lacks windows that were released from the quarantine.

        A run can't publish these windows again: it repeats only the decisions of earlier runs, and
        a user decided on the release.
        """
        published_table = self.definition.published_table
        released_version = self.tables.transaction_version(
            self.definition.quarantine_table, version_app(app, published_table)
        )
        if released_version is None or published_table in self.tables.broken:
            return False
        return self.tables.opened_version(published_table) < released_version

    def find_app(self) -> str | None:
        """Return the application id of the asset's commits (`Asset.commit_app`).

        Return None if the state is missing or damaged. A roll-up has the state of its base, and its
        published table must be intact, too.
        """
        state = self.tables.open_table(self.definition.state_table)
        if state is None:
            return None
        table_id = str(state.metadata().id)
        if self.definition.rolled_up_name is not None:
            published = self.tables.open_table(self.definition.published_table)
            if published is None:
                return None
            metadata = published.metadata()
            generation = rollup_generation.table_identity(str(metadata.id), metadata.configuration)
            table_id = f"{table_id}+{generation}"
        return f"{self.definition.name}/{table_id}"

    def _find_unpublished(
        self, state: DeltaTable, app: str, commit_number: int
    ) -> Iterator[Damage]:
        """Yield the damage if the ledger lacks a state's commits, and no run can publish them."""
        with suppress(TableNotFoundError, DeltaError):
            # A run may have published the commits since the ledger was opened.
            current_ledger = OpenTables(self.tables.folder).open_newest(LEDGER)
            published = _number_or_start(current_ledger.transaction_version(app))
            if not _can_republish(_read_commits_after(state, published)):
                name = self.definition.name
                version = self.tables.opened_version(LEDGER)
                yield Damage(
                    LEDGER,
                    f"has the runs of '{name}' up to number {published} (version {version}), but "
                    f"its state is at number {commit_number}",
                    name,
                )


def find_lost_results(tables: CheckedTables, definitions: Iterable[Definition]) -> Iterator[Damage]:
    """Yield the damage if the ledger vouches for validation results that the table lacks."""
    tables.open_table(CHECKS)
    if CHECKS in tables.broken:
        return
    ledger = tables.open_table(LEDGER)
    newest_vouched = -1
    for definition in definitions:
        app = AssetCheck(tables, definition).find_app()
        if app is None or ledger is None:
            continue
        vouched = ledger.transaction_version(version_app(app, CHECKS))
        newest_vouched = max(newest_vouched, _number_or_start(vouched))
    version = tables.opened_version(CHECKS)
    if version < newest_vouched:
        yield Damage(CHECKS, describe_lag(version, newest_vouched, LEDGER))


def _find_newest_number(state: DeltaTable) -> int:
    """Return the number of a state's newest commit; -1 if it has none."""
    return _number_or_start(state.transaction_version(STATE_APP))


def _number_or_start(number: int | None) -> int:
    """Return the number of a commit; -1, the number before the first commit, for None."""
    return -1 if number is None else number


def _read_commits_after(state: DeltaTable, commit_number: int) -> Sequence[StateCommit]:
    """Return a state's commits after a number.

    If one of them replaced all rows, leave out the commits before it.
    """
    newest_number = _find_newest_number(state)
    is_later = number_in("commit_number", commit_number + 1, newest_number + 1)
    rows = file_list.load_rows(state, (is_later,), ["commit_number", MARKER])
    markers = rows.filter(rows[MARKER].is_valid()).sort_by("commit_number")
    commits = [from_json(text) for text in markers[MARKER].to_pylist()]
    return drop_superseded(commits)


def _can_republish(commits: Sequence[StateCommit]) -> bool:
    """Return whether a run can publish commits again, exactly as they were.

    The newest commit of a state can always be published. Several commits can be published if there
    are at most `REPUBLISHED_COMMITS`, all with `can_repeat`.
    """
    if len(commits) <= 1:
        return True
    if len(commits) > thresholds.REPUBLISHED_COMMITS:
        return False
    return all(commit.can_repeat for commit in commits)
