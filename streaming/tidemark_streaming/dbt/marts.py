"""Marts: tables for readers, which dbt builds from the published windows.

dbt is a separate process and a client of the engine. Only the environment of that process has the
engine's address, with its token, and the location of the tables. Neither the project nor dbt's
arguments contain these values.

This module reads the project's models and sources from dbt's manifest. dbt creates the manifest
without the engine, and again only after the project, dbt's version or the location of the tables
has changed.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import cache, cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.files.trust import TRUSTED, find_folder_exposure
from tidemark.base.settings import Settings, bundled_dbt_project
from tidemark_streaming.base.background_poll import call_when
from tidemark_streaming.dbt import sources as dbt_sources
from tidemark_streaming.dbt.dbt_process import dbt_command
from tidemark_streaming.dbt.mart_locks import MartLocks, lock_marts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemark.store.warehouse import Warehouse

NO_UNIT_TESTS = ("--exclude-resource-type", "unit_test")
"""Excludes unit tests: they test the project's code, so they are not part of a build."""

_WITHOUT_TABLE = ("view", "ephemeral")
"""The materializations of models that have no table."""

_HEAD = 500
_TAIL = 1500
"""How many characters of a longer message are shown, from its beginning and from its end."""
_KEPT = 7 * 86_400.0
"""The seconds for which the manifest of an earlier state of the project is kept."""
_LOSS_POLL_SECONDS = 5.0
"""The time between two polls that find out whether a build has lost its engine or its marts."""


@dataclass(frozen=True)
class Outcome:
    """The result of a model or test in a build; `status` and `message` are dbt's."""

    name: str
    kind: str
    status: str
    seconds: float
    message: str

    @property
    def has_passed(self) -> bool:
        """True if the model or test neither failed nor was skipped because of another failure."""
        return self.status in ("success", "pass", "warn", "no-op")


@dataclass(frozen=True)
class Build:
    """A build outside the orchestrator: the time of its end, in nanoseconds, and its results."""

    at: int
    outcomes: Sequence[Outcome]


def has_project(settings: Settings) -> bool:
    """Return whether the folder in the settings holds a dbt project."""
    return _find_project(settings) is not None


def _find_project(settings: Settings) -> Path | None:
    """Return the folder in the settings if it holds a dbt project, otherwise None."""
    folder = settings.marts
    if folder is not None and (folder / "dbt_project.yml").is_file():
        return folder
    return None


class Marts:
    """The dbt project of the marts, in the folder that the setting `marts` names."""

    def __init__(self, settings: Settings) -> None:
        folder = _find_project(settings)
        if folder is None:
            project_folder = settings.marts or Path.cwd() / "dbt_project"
            raise DefinitionError(
                f"There is no dbt project in {project_folder} for these domains: set "
                "TIDEMARK_MARTS to a folder that holds a dbt_project.yml."
            )
        bundled = bundled_dbt_project()
        if folder != bundled and (exposure := find_folder_exposure(folder)) is not None:
            raise DefinitionError(
                f"The dbt project in {folder} contains code that runs as you, but others can "
                f"change it: {exposure}. If you trust them, set {TRUSTED}={folder}. Otherwise, "
                "check the code, take ownership with `chown`, and remove the permission of others "
                "with `chmod go-w`."
            )
        self.folder = folder
        self._settings = settings
        self._bundled = bundled or folder

    @property
    def database(self) -> str:
        """The database of the windows that the marts read."""
        return self._settings.database

    @property
    def profiles_folder(self) -> Path:
        """The folder of dbt's profiles: the project's own, or the bundled one."""
        if (self.folder / "profiles.yml").is_file():
            return self.folder
        return self._bundled

    def environment_variables(self, address: str | None = None) -> dict[str, str]:
        """Return the environment variables of dbt's process.

        The variables are secret, because they contain the engine's address with its token.

        Args:
            address: the engine's address; None if dbt does not use the engine.
        """
        variables = {
            "TIDEMARK_DATABASE": self._settings.database,
            "TIDEMARK_WAREHOUSE": self._settings.warehouse.rstrip("/"),
            "TIDEMARK_WINDOWS": ",".join(self._source_names),
            "DBT_PROJECT_DIR": str(self.folder),
            "DBT_PROFILES_DIR": str(self.profiles_folder),
            "TIDEMARK_DBT": str(self._bundled),
            "DBT_TARGET_PATH": str(self.target_folder),
            "DBT_LOG_PATH": str(self._settings.home / "logs"),
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
            "DBT_VERSION_CHECK": "false",
        }
        if address is not None:
            variables["SPARK_REMOTE"] = address
        return variables

    @cached_property
    def _source_names(self) -> list[str]:
        """The names of the assets and derived sources in the project's `models/sources.yml`.

        Models that read all of these tables get the names from an environment variable. They can't
        get them from dbt, which knows its sources only after it has parsed the models.
        """
        path = self.folder / dbt_sources.PLACE
        if path.is_file():
            return dbt_sources.read_listed_names(path.read_text(encoding="utf-8"), path)
        return []

    @cached_property
    def target_folder(self) -> Path:
        """The folder in Tidemark's home with dbt's output for the project's current state."""
        digest = hashlib.sha256()
        for part in (version("dbt-core"), self._settings.database, self._settings.warehouse):
            digest.update(part.encode())
        for folder in (self.folder, self._bundled / "macros", self._bundled / "tests"):
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    digest.update(str(path.relative_to(folder)).encode())
                    digest.update(path.read_bytes())
        return self._settings.home / "marts" / digest.hexdigest()[:12]

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        """dbt's description of the project: its models, tests and sources."""
        path = self.target_folder / "manifest.json"
        if not path.exists():
            self._parse_project()
        return json.loads(path.read_text())

    def list_marts(self) -> list[str]:
        """Return the names of the marts: all models except views and ephemeral models."""
        return sorted(node["name"] for node in self._list_materialized_models())

    def find_missing_tables(self, exists: Callable[[str], bool]) -> dict[str, list[str]]:
        """Return the models that can't be built yet, with the tables that they lack.

        A model whose `meta` has `any_table` can be built if at least one of its tables exists.
        """
        table_exists = cache(exists)
        by_mart: dict[str, list[str]] = {}
        for node in self._list_models():
            needed = sorted(set(self._find_required_tables(node)))
            absent = [table for table in needed if not table_exists(table)]
            is_optional = len(absent) < len(needed) and node["config"]["meta"].get("any_table")
            if absent and not is_optional:
                by_mart[node["name"]] = absent
        return by_mart

    def find_views(self, names: Iterable[str]) -> set[str]:
        """Return the views that the marts `names` read, directly or through other views.

        Views have no data; each build recreates them.
        """
        models = self._find_upstream_models(names, _is_view)
        return {node["name"] for node in models if _is_view(node)}

    def find_readers(self, table: str) -> dict[str, list[str]]:
        """Return the marts that read a table of Tidemark, directly or through other models.

        Returns:
            For each mart, the views between the table and the mart. If a view reads another view,
            only the one that reads the table itself is listed. The list is empty if there is no
            view in between.
        """
        readers = dict[str, list[str]]()
        for mart in sorted(self._list_materialized_models(), key=lambda node: node["name"]):
            views = self._find_views_between(mart, table)
            if views:
                readers[mart["name"]] = sorted(views - {""})
        return readers

    def name_relation(self, name: str) -> str:
        """Return the table or view of a model, as the engine's catalog names it."""
        (relation,) = (
            node["relation_name"] for node in self._list_models() if node["name"] == name
        )
        return relation

    def build_marts(
        self,
        warehouse: "Warehouse",
        address: str,
        names: Sequence[str],
        *,
        full_refresh: bool = False,
    ) -> list[Outcome]:
        """Build marts, with the models that they read, and test them.

        dbt finds tables by name. Those that the engine's catalog lacks are registered first. If
        another process builds one of the marts, wait for it. The loss of the engine ends the build.

        Args:
            warehouse: the tables that the marts read, with a session on the engine.
            address: the engine's address.

        Returns:
            The result of each model and test.

        Raises:
            ConflictError: another build of one of the marts took too long, or has taken it over.
            EngineLostError: the engine was lost during the build.
        """
        with lock_marts(self._settings, self.find_written_tables(names)) as locks:
            warehouse.register_missing_tables()
            finished = self._run_build(warehouse, address, names, locks, full_refresh)
        self._record_build(finished)
        return finished

    def find_written_tables(self, names: Iterable[str]) -> set[str]:
        """Return the marts `names`, and the marts that they read directly or through others."""
        models = self._find_upstream_models(names)
        return {node["name"] for node in models if _has_table(node)}

    def _find_upstream_models(
        self,
        names: Iterable[str],
        is_followed: Callable[[Mapping[str, Any]], bool] = lambda _: True,
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the marts `names`, and the models that they read, directly or through others.

        Args:
            is_followed: returns whether a model that is read counts; all count by default.
        """
        nodes = self.manifest["nodes"]
        wanted = set(names)
        waiting = [node for node in self._list_materialized_models() if node["name"] in wanted]
        seen = {node["unique_id"] for node in waiting}
        while waiting:
            node = waiting.pop()
            yield node
            for parent_id in node["depends_on"]["nodes"]:
                # A parent that is not a node is a source.
                parent = nodes.get(parent_id)
                if parent is not None and parent_id not in seen and is_followed(parent):
                    seen.add(parent_id)
                    waiting.append(parent)

    def _run_build(
        self,
        warehouse: "Warehouse",
        address: str,
        names: Sequence[str],
        locks: MartLocks,
        full_refresh: bool,
    ) -> list[Outcome]:
        from tidemark.engine.loss import raise_if_lost

        arguments = ["build", *NO_UNIT_TESTS]
        if full_refresh:
            arguments.append("--full-refresh")
        arguments.append("--select")
        arguments += [f"+{name}" for name in names]
        with tempfile.TemporaryDirectory(dir=self.target_folder, prefix="build-") as scratch:
            shutil.copy(self.target_folder / "partial_parse.msgpack", scratch)
            variables = self.environment_variables(address) | {"DBT_TARGET_PATH": scratch}
            is_lost = partial(has_lost_build, warehouse.spark, locks)
            output = run_dbt(arguments, variables, is_lost)
            if _has_failed(Path(scratch)):
                locks.raise_if_lost()
                raise_if_lost(warehouse.spark)
            return read_outcomes(Path(scratch), output)

    def list_builds(self, after_nanos: int) -> list[Build]:
        """Return the builds that ended after an instant in nanoseconds, in order."""
        builds = list[Build]()
        for path in sorted(self._builds_folder.glob("*.json")):
            ended_at = int(path.stem)
            if ended_at > after_nanos:
                outcomes = [Outcome(**fields) for fields in json.loads(path.read_text())]
                builds.append(Build(ended_at, outcomes))
        return builds

    @property
    def _builds_folder(self) -> Path:
        # One folder for each database, removed like `target` after a long time without a build.
        return self._settings.home / "marts" / f"builds-{self.database}"

    def _record_build(self, finished: Sequence[Outcome]) -> None:
        self._builds_folder.mkdir(exist_ok=True)
        note = self._builds_folder / f"{time.time_ns()}.json"
        # The rename is atomic, so readers find the whole file.
        scratch = note.with_suffix(".part")
        scratch.write_text(json.dumps([asdict(o) for o in finished]))
        scratch.rename(note)

    def _list_models(self) -> Iterator[Mapping[str, Any]]:
        for node in self.manifest["nodes"].values():
            if node["resource_type"] == "model":
                yield node

    def _list_materialized_models(self) -> Iterator[Mapping[str, Any]]:
        for node in self._list_models():
            if _has_table(node):
                yield node

    def _find_required_tables(self, node: Mapping[str, Any]) -> Iterator[str]:
        for parent in node["depends_on"]["nodes"]:
            source = self.manifest["sources"].get(parent)
            if source is None:
                yield from self._find_required_tables(self.manifest["nodes"][parent])
                continue
            is_required = not source["config"]["meta"].get("optional")
            if is_required and source["schema"] == self._settings.database:
                yield source["identifier"]

    def _find_views_between(self, node: Mapping[str, Any], table: str) -> set[str]:
        """Return the views through which a node reads a table; an empty name is a direct read."""
        views = set[str]()
        for parent in node["depends_on"]["nodes"]:
            source = self.manifest["sources"].get(parent)
            if source is None:
                model = self.manifest["nodes"][parent]
                is_view = _is_view(model)
                for view in self._find_views_between(model, table):
                    views.add(model["name"] if is_view and not view else view)
            elif (source["schema"], source["identifier"]) == (self._settings.database, table):
                views.add("")
        return views

    def _parse_project(self) -> None:
        folder = self.target_folder.parent
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            if old.stat().st_mtime < time.time() - _KEPT:
                shutil.rmtree(old, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(dir=folder, prefix="parse-"))
        variables = self.environment_variables() | {"DBT_TARGET_PATH": str(scratch)}
        output = run_dbt(["parse", "--quiet"], variables)
        if not (scratch / "manifest.json").exists():
            shutil.rmtree(scratch)
            raise DefinitionError(f"dbt can't read the project in {self.folder}: {output}")
        try:
            scratch.rename(self.target_folder)
        except OSError:
            # Another process was faster, and its result is the same.
            shutil.rmtree(scratch)


def _is_view(model: Mapping[str, Any]) -> bool:
    return model["config"]["materialized"] == "view"


def _has_table(model: Mapping[str, Any]) -> bool:
    return model["config"]["materialized"] not in _WITHOUT_TABLE


def read_outcomes(target: Path, output: str = "") -> list[Outcome]:
    """Return the result of each model and test in a build.

    Args:
        target: the folder with dbt's output files of the build.
        output: dbt's output, for the error message if the build did not start.
    """
    results = target / "run_results.json"
    if not results.exists():
        raise DefinitionError(f"dbt did not build the marts: {output}")
    return [_parse_outcome(result) for result in json.loads(results.read_text())["results"]]


def _has_failed(target: Path) -> bool:
    """Return whether dbt failed before or during the build with this folder of output files."""
    is_complete = (target / "run_results.json").exists()
    return not is_complete or describe_failure(read_outcomes(target)) != ""


def describe_missing_table(missing: Mapping[str, Sequence[str]], names: Iterable[str]) -> str:
    """Return a message about the first table that the marts lack; empty if none is missing."""
    for name in names:
        for table in missing.get(name, ()):
            return (
                f"'{name}' reads the table '{table}', which does not exist yet: first materialize "
                f"'{table}' (`tidemark run {table}`, or in Dagster)."
            )
    return ""


def describe_failure(outcomes: Iterable[Outcome]) -> str:
    """Return a message about the first model or test that failed in a build; empty if none did."""
    # dbt may add further statuses of a failure, such as `partial success`.
    failed = [o for o in outcomes if not o.has_passed and o.status != "skipped"]
    if not failed:
        return ""
    first = failed[0]
    kind = {"test": "Test", "operation": "Hook"}.get(first.kind, "Mart")
    reason = _remove_stack_trace(first.message).rstrip(".")
    message = f"{kind} '{first.name}' failed: {reason}."
    if len(failed) > 1:
        message += f" ({len(failed) - 1} more failed)"
    return message


def _remove_stack_trace(message: str) -> str:
    """Return a message of dbt without the engine's stack trace.

    The end often names the row at fault, so only the middle of a very long message is left out.
    """
    text = message.partition("JVM stacktrace:")[0].strip()
    if len(text) <= _HEAD + _TAIL:
        return text
    return f"{text[:_HEAD]} … {text[-_TAIL:]}"


def raise_if_any(*sentences: str) -> None:
    """Raise an error with the given messages, unless all of them are empty."""
    summary = " ".join(filter(None, sentences))
    if summary:
        raise DataError(summary)


def run_dbt(
    arguments: Sequence[str],
    variables: Mapping[str, str],
    is_lost: Callable[[], bool] | None = None,
) -> str:
    """Run dbt, and return its output as one line.

    Args:
        is_lost: returns whether dbt must be killed; None if it runs to its end in any case.
    """
    with (
        subprocess.Popen(
            dbt_command(arguments),
            env={**os.environ, **variables, "DBT_USE_COLORS": "false"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as dbt,
        nullcontext() if is_lost is None else killed_if_lost(dbt, is_lost),
    ):
        try:
            output, _ = dbt.communicate()
        except BaseException:
            dbt.kill()
            raise
    return " ".join(output.split())


def has_lost_build(session: "SparkSession", locks: MartLocks) -> bool:
    """Return whether a build can't continue: its engine is lost, or another process has taken over
    one of its marts."""
    from tidemark.engine.loss import has_lost_engine

    return locks.are_lost or has_lost_engine(session)


def killed_if_lost(
    dbt: "subprocess.Popen[Any]", is_lost: Callable[[], bool]
) -> AbstractContextManager[None]:
    """Kill dbt if its build is lost during the `with` block.

    If the engine is lost, dbt's own client would wait for ten minutes until it is back, and again
    for each model. A new engine does not have dbt's session.
    """
    return call_when(is_lost, dbt.kill, seconds=_LOSS_POLL_SECONDS, thread="build of marts")


def _parse_outcome(result: Mapping[str, Any]) -> Outcome:
    kind, _, name = result["unique_id"].split(".")[:3]
    message = " ".join(str(result["message"] or "").split())
    return Outcome(name, kind, result["status"], result["execution_time"], message)
