"""The alert rules, evaluated by Prometheus' own tool."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

RULES = Path(__file__).parents[3] / "ops/prometheus/rules.yml"
PROMTOOL = shutil.which("promtool")
NEEDS_PROMTOOL = "no promtool here: the alerts were not evaluated"

Labels = Mapping[str, str]


def rules() -> dict[str, Any]:
    """Return the alerts by name."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def alert_case(
    series: Mapping[str, str], query: str, minutes: int, alerts: Sequence[Labels]
) -> dict[str, Any]:
    """Return a test of the rules, in promtool's format.

    Args:
        series: values a minute apart, in promtool's notation, by series.
        query: asks for alerts, for example `ALERTS{alertstate="firing"}`.
        minutes: the time of the query.
        alerts: the labels of each alert that the query must return, and no others.
    """
    samples = [{"labels": f"ALERTS{selector(labels)}", "value": 1} for labels in alerts]
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": query, "eval_time": f"{minutes}m", "exp_samples": samples}],
    }


def selector(labels: Labels) -> str:
    """Return labels as they are written after the name of a series."""
    return "{" + ", ".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def check_alerts(folder: Path, cases: Sequence[Mapping[str, Any]]) -> None:
    """Fail if an alert of some cases does not fire, or if another one does."""
    file = folder / "alerts.yml"
    told = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [*cases]}
    file.write_text(yaml.safe_dump(told))
    done = subprocess.run([str(PROMTOOL), "test", "rules", str(file)], capture_output=True)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
