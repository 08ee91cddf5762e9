"""The page's JavaScript in an engine of this process: no browser and no Node is needed.

The engine has no modules.  The pure files of the page import only each other, so they are joined: what they export becomes
global, and their imports are left out.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

from py_mini_racer import MiniRacer

from tests.project.source import ROOT

STATIC = ROOT / "src" / "replitree" / "ui" / "static"
FILES = ("fold.js", "text.js", "numberline.js", "treemap.js", "strips.js", "trace.js", "tablets.js", "storage.js")
IMPORT = re.compile(r"^import [^;]+;\n", re.MULTILINE)
EXPORT = re.compile(r"^export (?=class|const|function)", re.MULTILINE)
LAST_EXPORT = re.compile(r"export\s*\{([^}]*)\};?\s*$")


@cache
def engine() -> MiniRacer:
    """An engine that has all of `FILES`, and d3-hierarchy as `d3`."""
    made = MiniRacer()
    library = (STATIC / "vendor" / "d3-hierarchy.min.mjs").read_text()
    exported = LAST_EXPORT.search(library)
    assert exported is not None
    names = ",".join(
        f"{new.strip()}:{own.strip()}" for own, new in (each.split(" as ") for each in exported[1].split(","))
    )
    made.eval(f"const d3=(()=>{{{library[: exported.start()]}return {{{names}}}}})();")
    for name in FILES:
        # Each file has constants of its own of the same names, so only its exports leave it.
        text = (STATIC / name).read_text()
        exports = re.findall(r"^export (?:class|const|function) (\w+)", text, re.MULTILINE)
        body = EXPORT.sub("", IMPORT.sub("", text))
        made.eval(f"const {{{','.join(exports)}}} = (() => {{ {body}\nreturn {{{','.join(exports)}}}; }})();")
    return made


def evaluate(expression: str, **values: Any) -> Any:
    """Return the value of an expression, in which `values` are known by their names."""
    known = "".join(f"const {name} = {json.dumps(value)};" for name, value in values.items())
    text = engine().eval(f"(() => {{ {known} return JSON.stringify({expression}); }})()")
    assert isinstance(text, str)
    return json.loads(text)
