"""The HTTP API as OpenAPI 3.1, made from the routes of the replica's server, and its pages.

Each route has a handler; its docstring is the summary.  Bodies and parameters of queries are those that the
source of the handler reads: `read_body(request, Body)`, `request.query.get("name")`, `seconds(request.query, "name", …)`.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import msgspec

import replitree
from replitree.replica.http.http_api import HttpApi
from tools.pages.markdown import table

OPEN = frozenset({"/health", "/metrics"})
"""Paths that need no token."""

ERRORS = "#/components/responses/Error"

PAGES = {
    "http": ("HTTP: inserts, reads, state", ""),
    "http-commands": ("HTTP: changes and settings", "http_commands"),
    "http-replicas": ("HTTP: what replicas and Spark's tasks ask each other", "http_exchange|http_joint|http_merges"),
}
"""Title of each page, and the modules whose routes it has; the first has those that no other page has."""

HEAD = """\
Every replica serves this API at the address of its setting `advertise`. Every path but `/health` and `/metrics` wants the
header `Authorization: Bearer TOKEN`. Bodies are JSON, but rows, which are Arrow streams, and data files. An error has the
status and the body of the page on errors. The whole description is in `openapi.json` beside this page (OpenAPI 3.1).
Clients of another language should keep to `/v1/…/insert`, `snapshot`, `status` and the commands; what replicas ask each
other may change with any version.
"""


def handlers() -> Iterator[tuple[str, str, Any]]:
    """Give method, path and handler of each route of the application."""
    # Making the routes asks for nothing that the server has: the handlers only keep what they are given.
    nothing: Any = SimpleNamespace(bodies=SimpleNamespace(held=None))
    for route in HttpApi(nothing, nothing, nothing).application().router.routes():
        if route.method != "HEAD" and route.resource is not None:
            yield (
                route.method.lower(),
                route.resource.canonical,
                inspect.getclosurevars(route.handler).nonlocals["handler"],
            )


def description() -> dict[str, Any]:
    """Return the OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    kinds: dict[str, type] = {}
    for method, path, handler in handlers():
        paths.setdefault(path, {})[method] = _operation(method, path, handler, kinds)
    _, schemas = msgspec.json.schema_components(tuple(kinds.values()), ref_template="#/components/schemas/{name}")
    error = {
        "type": "object",
        "required": ["error", "message"],
        "properties": {each: {"type": "string"} for each in ("error", "message", "token")},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "replitree", "version": replitree.__version__, "license": {"name": "Apache-2.0"}},
        "security": [{"token": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {**schemas, "Error": error},
            "responses": {
                "Error": {
                    "description": "An error: its class, its message and, where there is one, the token that settles it",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
                }
            },
        },
    }


def _operation(method: str, path: str, handler: Any, kinds: dict[str, type]) -> dict[str, Any]:
    """Return one operation; the class of its body is added to the kinds."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(handler)))
    named = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", path)
    ]
    queried = [
        {"name": name, "in": "query", "schema": {"type": "string"}}
        for name in _queried(tree, handler.__func__.__globals__)
    ]
    made: dict[str, Any] = {
        "operationId": f"{method}_{re.sub(r'[^a-z]+', '_', path.lower()).strip('_')}",
        "summary": summary(handler),
        "tags": [handler.__func__.__module__.rpartition(".")[2]],
        "responses": {"200": {"description": "Done"}, "default": {"$ref": ERRORS}},
    }
    if named or queried:
        made["parameters"] = named + queried
    if path in OPEN:
        made["security"] = []
    if body := _body(tree, handler):
        kinds[body.__name__] = body
        content: dict[str, Any] = {"application/json": {"schema": {"$ref": f"#/components/schemas/{body.__name__}"}}}
        made["requestBody"] = {"content": content}
    elif any(name in ast.unparse(tree) for name in ("read_whole(", "read_pieces(")):
        made["requestBody"] = {"content": {"application/octet-stream": {}}}
    return made


def summary(handler: Any) -> str:
    """Return the first paragraph of a handler's docstring."""
    return (inspect.getdoc(handler) or "").split("\n\n")[0].replace("\n", " ")


def _queried(tree: ast.AST, known: Mapping[str, Any]) -> list[str]:
    """Return the parameters of the query that a handler reads by name; `known` has the constants of its module."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            called = ast.unparse(node.func)
            if called in ("request.query.get", "query.get"):
                found.add(_constant(node.args[0], known))
            if called in ("seconds", "number") and "query" in ast.unparse(node.args[0]) and len(node.args) > 1:
                found.add(_constant(node.args[1], known))
            if called == "token_of":
                found.add("token")
            if called == "wish_of":
                found.update(("quorum", "quorum_timeout_s"))
    return sorted(filter(None, found))


def _constant(node: ast.expr, known: Mapping[str, Any]) -> str:
    value = node.value if isinstance(node, ast.Constant) else known.get(node.id) if isinstance(node, ast.Name) else None
    return value if isinstance(value, str) else ""


def _body(tree: ast.AST, handler: Any) -> type | None:
    """Return the class of the JSON body that a handler reads."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "read_body" and isinstance(node.args[1], ast.Name):
            kind: type = handler.__func__.__globals__[node.args[1].id]
            return kind
    return None


def page(name: str) -> str:
    """Return one page."""
    title, _ = PAGES[name]
    rows = []
    for path, operations in description()["paths"].items():
        for method, made in operations.items():
            home = next(
                (each for each, (_, wanted) in PAGES.items() if wanted and made["tags"][0] in wanted.split("|")), "http"
            )
            if name == home:
                rows.append([f"`{method.upper()} {path}`", made["summary"], ", ".join(_asked(made))])
    intro = HEAD if name == "http" else "See [HTTP: inserts, reads, state](http.md) for addresses, tokens and errors."
    return f"# {title}\n\n{intro}\n\n{table(['route', 'what it does', 'query and body'], rows)}\n"


def _asked(made: dict[str, Any]) -> Iterator[str]:
    yield from (f"`{each['name']}`" for each in made.get("parameters", ()) if each["in"] == "query")
    for kind, content in made.get("requestBody", {"content": {}})["content"].items():
        yield f"body `{content['schema']['$ref'].rpartition('/')[2]}`" if content else f"body {kind}"
