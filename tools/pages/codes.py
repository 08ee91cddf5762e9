"""Pages of what a program may hear: the errors, and the findings of `replitree doctor`."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

from replitree import errors
from replitree.client.admin import doctor_replica
from replitree.wire.errors_http import STATUS
from tools.pages.markdown import table

ADMIN = Path(inspect.getfile(doctor_replica)).parent

ERRORS_HEAD = """\
# Errors

Every error that replitree raises on purpose is a `replitree.errors.ReplitreeError`. Its message says what to do. Over HTTP
the answer has the status of the table and a JSON body with `error` (the name of the class), `message` and, for
`OutcomeUnknown`, the `token` that settles it. Errors without a status are raised by the client.
"""

DOCTOR_HEAD = """\
`replitree doctor --json` gives for each finding `severity`, `code`, `text`, `advice`, `table` and `replica`. A code stays
the same when the words change. In the texts below, what stands in braces depends on the cluster. The exit status is 0 when
the worst severity is `ok` or `notice`, 1 for `warning`, 2 for `critical`.
"""


def errors_page() -> str:
    """Return the page of errors."""
    rows = []
    for name, found in vars(errors).items():
        if inspect.isclass(found) and issubclass(found, errors.ReplitreeError):
            above = found.__mro__[1].__name__ if found is not errors.ReplitreeError else ""
            text = inspect.cleandoc(found.__doc__ or "").split("\n\n")[0]
            rows.append([f"`{name}`", f"`{above}`" if above else "", str(STATUS.get(found, "")), text])
    return f"{ERRORS_HEAD}\n{table(['error', 'is a', 'HTTP', 'what it means'], rows)}\n"


DOCTOR_PAGES = {
    "doctor": ("Findings of the doctor: replicas", ("doctor_replica",)),
    "doctor-tables": ("Findings of the doctor: tables", ("doctor_table", "doctor")),
    "doctor-cluster": ("Findings of the doctor: cluster and coordination", ("doctor_cluster", "doctor_coordination")),
}
"""Title and modules of each page."""


def doctor_page(name: str) -> str:
    """Return one page of findings."""
    title, modules = DOCTOR_PAGES[name]
    found: dict[str, dict[str, list[str]]] = {}
    for path in (ADMIN / f"{module}.py" for module in modules):
        for severity, code, text, advice in findings(ast.parse(path.read_text(encoding="utf-8"))):
            kept = found.setdefault(code, {"severity": [], "text": [], "advice": []})
            for key, value in (("severity", severity), ("text", text), ("advice", advice)):
                if value and value not in kept[key]:
                    kept[key].append(value)
    rows = [
        [f"`{code}`", " or ".join(each["severity"]), " / ".join(each["text"]), " / ".join(each["advice"])]
        for code, each in sorted(found.items())
    ]
    return f"# {title}\n\n{DOCTOR_HEAD}\n{table(['code', 'severity', 'what is so', 'what to do'], rows)}\n"


def findings(tree: ast.Module) -> Iterator[tuple[str, str, str, str]]:
    """Give severity, code, text and advice of each finding that a module can make."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "DoctorFinding":
                parts: list[ast.expr] = node.args
            elif isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
                parts = node.value.elts
            else:
                continue
            known = _texts(function, node.lineno)
            if len(parts) >= 3 and "Severity" in ast.dump(parts[0]) + known.get(ast.unparse(parts[0]), ""):
                for code in _codes(parts[1], known):
                    text, advice = (_text(each, known) for each in (*parts[2:4], ast.Constant(""))[:2])
                    yield _severity(parts[0], known), code, text, advice
    for node in tree.body:
        # States of a replica: the table has severity and advice, and the state is the code.
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "_STATES":
            assert isinstance(node.value, ast.Dict)
            for key, value in zip(node.value.keys, node.value.values, strict=True):
                assert isinstance(key, ast.Constant)
                assert isinstance(value, ast.Tuple)
                code = str(key.value).replace("_", "-")
                yield _severity(value.elts[0], {}), code, f"{{name}} is {code} in {{table}}", _text(value.elts[1], {})


def _texts(function: ast.FunctionDef, line: int) -> dict[str, str]:
    """Return the texts that a function has assigned to names before a line; of a name, the last one."""
    found: dict[str, str] = {}
    assigned = [node for node in ast.walk(function) if isinstance(node, ast.Assign) and node.lineno < line]
    for loop in ast.walk(function):
        # `for code, … in ((code, …), …)`: each of the codes.
        if isinstance(loop, ast.For) and isinstance(loop.target, ast.Tuple) and isinstance(loop.iter, ast.Tuple):
            rows = [row.elts for row in loop.iter.elts if isinstance(row, ast.Tuple)]
            for name, *values in zip(loop.target.elts, *rows, strict=True):
                if isinstance(name, ast.Name) and all(isinstance(each, ast.Constant) for each in values):
                    found[name.id] = " / ".join(_text(each, {}) for each in values)
    for node in sorted(assigned, key=lambda each: each.lineno):
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=True))
            for name, value in pairs:
                if isinstance(name, ast.Name):
                    found[name.id] = ast.unparse(value) if "Severity" in ast.dump(value) else _text(value, {})
    return found


def _codes(node: ast.expr, known: dict[str, str]) -> list[str]:
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.Name(id=name) if known.get(name, "").strip("{}") not in ("", name):
            return [each for each in known[name].split(" / ") if "{" not in each and " " not in each]
    return []


def _severity(node: ast.expr, known: dict[str, str]) -> str:
    text = known.get(ast.unparse(node), "") or ast.unparse(node)
    return " or ".join(each for each in ("critical", "warning", "notice", "ok") if f"Severity.{each.upper()}" in text)


def _text(node: ast.expr, known: dict[str, str]) -> str:
    """Return a text as it is printed, with the names of what is filled in, in braces."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_text(each, known) for each in values)
        case ast.FormattedValue(value=ast.Call(func=ast.Name(id="count"), args=[_, one, *many])):
            return f"{{number}} {_text(many[0] if many else one, known)}{'' if many else 's'}"
        case ast.FormattedValue(value=ast.Attribute(value=ast.Name(id=owner), attr="name")):
            return f"{{{owner}}}"
        case ast.FormattedValue(value=ast.Call(args=[ast.Attribute(attr=name) | ast.Name(id=name), *_])):
            return f"{{{name}}}"
        case ast.FormattedValue(value=ast.Attribute(attr=name) | ast.Name(id=name)):
            return f"{{{name}}}"
        case ast.FormattedValue():
            return "{…}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left, known) + _text(right, known)
        case ast.IfExp(body=body, orelse=orelse):
            return " / ".join(filter(None, (_text(body, known), _text(orelse, known))))
        case ast.Name(id=name):
            return known.get(name) or f"{{{name}}}"
        case ast.Tuple():
            return ""
    return "{…}"
