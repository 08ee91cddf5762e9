"""The files below deploy/ as data, and the metrics that they name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.project.source import ROOT

DEPLOY = ROOT / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
ALERT_TESTS = DEPLOY / "prometheus" / "alerts.test.yml"
DASHBOARD = DEPLOY / "grafana" / "dashboards" / "replitree.json"
COMPOSE = DEPLOY / "container" / "compose.yaml"

METRIC = re.compile(r"\b(?:replitree|process|python)_[a-z0-9_]+\b")
OF_PROMETHEUS = frozenset({"up", "ALERTS"})


def read_yaml(name: str) -> Any:
    """A file of deploy/ as data."""
    return yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))


def rules() -> list[dict[str, Any]]:
    """Every alert."""
    return [rule for group in read_yaml("prometheus/alerts.yml")["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    """Every panel of the dashboard that shows something."""
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def expressions() -> Iterator[str]:
    """What alerts and the dashboard ask Prometheus."""
    yield from (rule["expr"] for rule in rules())
    yield from (target["expr"] for panel in panels() for target in panel["targets"])


def named_metrics() -> set[str]:
    """The metrics in them."""
    return {name for expression in expressions() for name in METRIC.findall(expression)}


def exposed(metrics: bytes) -> set[str]:
    """The metrics that a server's `/metrics` shows or declares: a table's are there with its first value only."""
    text = metrics.decode()
    samples = set(re.findall(r"^([a-z0-9_]+)(?:\{| )", text, re.MULTILINE))
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE):
        samples |= {f"{name}_bucket", f"{name}_count", f"{name}_sum"} if kind == "histogram" else {name}
    return samples
