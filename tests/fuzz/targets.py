"""All targets, by name, and the modules that they are in."""

from __future__ import annotations

from types import ModuleType

from tests.fuzz import on_answers, on_http, on_json, on_nodes, on_page, on_rows, on_tablet, on_text, self_test
from tests.fuzz.target import Target

_MODULES: tuple[ModuleType, ...] = (on_nodes, on_json, on_tablet, on_text, on_rows, on_answers, on_http, on_page)

MODULE_OF: dict[str, str] = {
    target.name: module.__name__ for module in (*_MODULES, self_test) for target in module.TARGETS
}
"""Where each target is: a child process imports no more than that."""

ALL: dict[str, Target] = {target.name: target for module in (*_MODULES, self_test) for target in module.TARGETS}
"""The targets, and the one by which the fuzzer is tested."""

TARGETS: dict[str, Target] = {name: target for name, target in ALL.items() if name != self_test.NAME}
