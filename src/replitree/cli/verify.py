"""`replitree verify`: explore the protocol's models, and simulate clusters with faults."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from replitree.cli.options import Json
from replitree.cli.output import Output
from replitree.errors import BadInput

app = typer.Typer(
    help="Check the protocol: every order of events, or many random ones.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("list")
def list_models(as_json: Json = False) -> None:
    """List the models with their invariants and mutants."""
    from replitree.verify import registry

    models = _plain(registry.list_models())
    out = Output(as_json)
    if as_json:
        out.json({"models": models})
        return
    rows = [(m["name"], ", ".join(m["invariants"]), ", ".join(m["mutants"]), m.get("description", "")) for m in models]
    out.table("models", ("name", "invariants", "mutants", "what it explores"), rows)


@app.command("explore")
def explore(
    name: Annotated[
        str, typer.Argument(metavar="MODEL", help="Name of the model; `replitree verify list` shows them.")
    ],
    mutant: Annotated[
        str | None,
        typer.Option(
            "--mutant", metavar="NAME", help="Break the protocol in this way; then a violation must be found."
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Explore every order of events of a model; exit 0 when nothing is violated, or when the mutant is caught."""
    from replitree.verify import registry

    _check_names(name, mutant)
    result = _plain(registry.explore(name, mutant))
    violated = bool(result["violations"])
    out = Output(as_json)
    if as_json:
        out.json(result)
    else:
        _print_explored(name, mutant, result)
    return 0 if violated == (mutant is not None) else 1


@app.command("simulate")
def simulate(
    seeds: Annotated[str, typer.Option("--seeds", metavar="A:B", help="Seeds from A up to and without B.")] = "0:100",
    as_json: Json = False,
) -> int:
    """Run clusters with faults drawn from seeds; exit 0 when nothing is violated."""
    first, end = parse_seeds(seeds)
    from replitree.verify import registry

    result = _plain(registry.simulate(first, end))
    out = Output(as_json)
    if as_json:
        out.json(result)
    else:
        out.fields(
            f"seeds {first} to {end - 1}",
            {key: value for key, value in result.items() if not isinstance(value, list | dict)},
        )
        for violation in result["violations"]:
            print(_violation(violation))
    return 1 if result["violations"] else 0


def parse_seeds(text: str) -> tuple[int, int]:
    """Read ``A:B``.

    Raises
    ------
    BadInput
        It is not of that form, or the range is empty.

    >>> parse_seeds("0:1000")
    (0, 1000)
    """
    found = re.fullmatch(r"(\d{1,12}):(\d{1,12})", text.strip())
    if found is None or int(found[1]) >= int(found[2]):
        raise BadInput(f"--seeds {text}: expected a range such as 0:1000, the first number below the second")
    return int(found[1]), int(found[2])


def _check_names(name: str, mutant: str | None) -> None:
    """Refuse names that are not there; say which are."""
    from replitree.verify import registry

    models = {model["name"]: model for model in _plain(registry.list_models())}
    if name not in models:
        raise BadInput(f"there is no model {name!r}; there are {', '.join(sorted(models))}")
    if mutant is not None and mutant not in models[name]["mutants"]:
        known = ", ".join(models[name]["mutants"]) or "none"
        raise BadInput(f"model {name} has no mutant {mutant!r}; it has {known}")


def _print_explored(name: str, mutant: str | None, result: dict[str, Any]) -> None:
    states, seconds = result["states"], result["seconds"]
    speed = f"{states / seconds:,.0f}" if seconds else "-"
    title = name if mutant is None else f"{name} with mutant {mutant}"
    print(f"{title}: {states:,} states, {result['transitions']:,} transitions in {seconds:.2f} s ({speed} states/s)")
    for violation in result["violations"]:
        print(_violation(violation))
    trace = result.get("trace")
    if trace:
        print("\nshortest counterexample:\n")
        print(trace if isinstance(trace, str) else "\n".join(str(line) for line in trace))
    if mutant is None:
        print("VIOLATED" if result["violations"] else "no violation")
    else:
        print("caught" if result["violations"] else "NOT CAUGHT: the model does not see this mutant")


def _violation(violation: Any) -> str:
    if isinstance(violation, dict):
        return "violated: " + ", ".join(
            f"{key} {value}" for key, value in violation.items() if not isinstance(value, list | dict)
        )
    return f"violated: {violation}"


def _plain(value: Any) -> Any:
    """Return what the registry gave as dictionaries and lists."""
    import msgspec

    return msgspec.to_builtins(value, enc_hook=str)
