"""The page of metrics: what `/metrics` of a replica has."""

from __future__ import annotations

from replitree.replica.kit.metrics import Metrics
from tools.pages.markdown import table

HEAD = """\
# Metrics

`GET /metrics` of every replica, without a token, in the text format of Prometheus. A counter ends with `_total`; a
histogram has the series `_bucket`, `_sum` and `_count`.
"""


def page() -> str:
    """Return the page."""
    rows = []
    for found in Metrics().registry.collect():
        name = f"{found.name}_total" if found.type == "counter" else found.name
        rows.append([f"`{name}`", found.type, found.documentation])
    return f"{HEAD}\n{table(['metric', 'kind', 'what it counts'], sorted(rows))}\n"
