"""Log the actions of long-running processes as lines of JSON, for machines.

With `log_format` = `json`, every line on the standard error of such a process is one JSON object.
Otherwise the output is for people, and this module does nothing. A line has metadata of arrivals,
runs and records, but never the values of a row.
"""

import json
import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from types import TracebackType
from typing import Any

from tidemark.base.instants import format_instant
from tidemark.base.settings import Settings

_ROOT = logging.getLogger("tidemark")
_SECRET = re.compile(r"(?i)((?:token|password|secret)\W{0,3}[=:]\W{0,3})[^\s;,'\"]+")
_log: logging.Logger | None = None


def begin_logging(settings: Settings, process: str, *, guest: bool = False) -> bool:
    """Start to log as JSON in this process and return True if `log_format` is `json`; else return
    False.

    Args:
        process: the kind of process, the last part of the logger's name.
        guest: true if the process belongs to another program, which has its own logging.
    """
    global _log
    if settings.log_format != "json":
        return False
    if _log is None:
        handler = logging.StreamHandler()
        handler.setFormatter(_create_formatter())
        _ROOT.setLevel(logging.INFO)
        if guest:
            _ROOT.addHandler(handler)
            _ROOT.propagate = False
        else:
            logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
            logging.captureWarnings(capture=True)
            sys.excepthook = _log_uncaught
    _log = _ROOT.getChild(process)
    return True


def is_structured() -> bool:
    """Return whether this process logs as JSON."""
    return _log is not None


def log_event(event: str, /, *, level: int = logging.INFO, **facts: object) -> None:
    """Log an event with named fields. Fields that are None are left out."""
    if _log is not None:
        defined = {name: fact for name, fact in facts.items() if fact is not None}
        _log.log(level, event, extra=defined)


def log_warning(event: str, /, **facts: object) -> None:
    """Log an event as a warning, with named fields as for `log`."""
    log_event(event, level=logging.WARNING, **facts)


def of_run(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the log fields of a run.

    Args:
        row: a row of the ledger, with instants in microseconds.
    """
    from tidemark.store.ledger import step_spans

    names = ("asset", "run", "mode", "commit_number", "from_arrival", "through_arrival", "windows")
    counted = ("on_time", "late", "too_late", "no_event_time", "duplicate", "quarantined")
    return {
        **{name: row[name] for name in names},
        **{name: row[name] for name in counted},
        "watermark": format_instant(row["watermark"]),
        "seconds": (row["ended_at"] - row["started_at"]) / 1e6,
        "steps": {step: (end - start) / 1e6 for step, start, end in step_spans(row)},
    }


def _create_formatter() -> logging.Formatter:
    import structlog

    stdlib = structlog.stdlib
    processors = structlog.processors
    return stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            stdlib.add_logger_name,
            stdlib.add_log_level,
            processors.TimeStamper(fmt="iso", utc=True),
            stdlib.ExtraAdder(),
        ],
        processors=[
            stdlib.ProcessorFormatter.remove_processors_meta,
            processors.format_exc_info,
            _mask_secrets,
            processors.JSONRenderer(serializer=json.dumps, default=str),
        ],
    )


def _mask_secrets(_: object, __: str, facts: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Mask strings that look like secrets in the message and the traceback of an entry."""
    for name in ("event", "exception"):
        if name in facts:
            facts[name] = _SECRET.sub(r"\1***", str(facts[name]))
    return facts


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    _ROOT.critical("%s", error, exc_info=(kind, error, trace))
