"""`replitree verify`: explore the protocol's models, and simulate clusters with faults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Annotated, Any

import typer

from replitree.cli.options import Json
from replitree.cli.output import Output
from replitree.cli.plugins import PluginGroup
from replitree.errors import BadInput
from replitree_verify.cli.history import history
from replitree_verify.cli.nemesis import nemesis


class Commands(PluginGroup):
    """The commands of the checker, and the bridge to the published models in a checkout."""

    group = "replitree.verify.commands"
    missing = MappingProxyType(
        {"bridge": "the published models are in no wheel: clone the repository of replitree and run `make setup` there"}
    )


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    help="Check the protocol: every order of events, or many random ones.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("history")(history)
app.command("nemesis")(nemesis)

Model = Annotated[str, typer.Argument(metavar="MODEL", help="Name of the model; `replitree verify list` shows them.")]
Mutant = Annotated[
    str | None,
    typer.Option("--mutant", metavar="NAME", help="Break the protocol in this way; then a violation must be found."),
]
Seeds = Annotated[str, typer.Option("--seeds", metavar="A:B", help="Seeds from A up to and without B.")]
Workers = Annotated[
    int, typer.Option("--workers", metavar="N", min=1, help="Processes that share the seeds; the result is the same.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=N", help="Of a packed model: another limit, such as replicas=5. Repeat it."),
]
Symmetry = Annotated[
    bool,
    typer.Option("--symmetry", help="Count states that differ by names (of replicas, requests, tokens) only once."),
]
Reduction = Annotated[
    str | None,
    typer.Option("--reduction", metavar="NAME", help="Leave out fewer or more states: plain, joined, or ample."),
]
Models = Annotated[list[str] | None, typer.Argument(metavar="[MODEL]...", help="Names of models.")]
Tablets = Annotated[
    bool, typer.Option("--tablets", help="Not clusters, but random histories of random models of a tablet.")
]
Shards = Annotated[
    int, typer.Option("--shards", metavar="N", min=0, max=8, help="Not a plain table, but one of N shards.")
]
Replicas = Annotated[
    int,
    typer.Option("--replicas", metavar="N", min=0, max=5, help="With --shards: of each shard; 0: 2 or 3, by the seed."),
]
Hours = Annotated[int, typer.Option("--hours", metavar="H", min=0, help="Stretch each run to so many virtual hours.")]


@app.command("list")
def list_models(as_json: Json = False) -> None:
    """List the models with their invariants and mutants."""
    models = _every_model()
    out = Output(as_json)
    if as_json:
        out.json(models)
        return
    rows = [
        (
            f"{model['name']}{' (nightly)' if model.get('nightly') else ''}",
            ", ".join(model["mutants"]),
            str(model.get("description", "")),
        )
        for model in models
    ]
    out.table("models", ("name", "mutants it catches", "what it explores"), rows)
    print(f"every state is checked for: {', '.join(dict.fromkeys(name for m in models for name in m['invariants']))}")


def _every_model() -> list[dict[str, Any]]:
    # Imported by the commands that need it, here and below: models import the whole protocol, and `history` needs none.
    from replitree_verify import registry
    from replitree_verify.small_models import list_beside

    return [*registry.list_models(), *list_beside(), *registry.list_packed()]


@app.command("explore")
def explore(
    model: Model,
    mutant: Mutant = None,
    settings: Settings = None,
    symmetry: Symmetry = False,
    reduction: Reduction = None,
    as_json: Json = False,
) -> int:
    """Explore every order of events of a model; exit 0 when nothing is violated, or when the mutant is caught."""
    from replitree_verify import registry
    from replitree_verify.small_models import explore_beside, list_beside

    mutants = {each["name"]: each["mutants"] for each in _every_model()}
    if model not in mutants:
        near = ", ".join(get_close_matches(model, mutants)) or "none has a name like it"
        raise BadInput(f"there is no model {model!r} ({near}): `replitree verify list` shows all {len(mutants)}")
    if mutant is not None and mutant not in mutants[model]:
        raise BadInput(f"model {model} has no mutant {mutant!r}; it has {', '.join(mutants[model]) or 'none'}")
    limits = parse_settings(settings or [])
    if model in [packed["name"] for packed in registry.list_packed()]:
        if reduction is not None:
            raise BadInput(f"model {model} is packed and takes no --reduction; --symmetry is there for it")
        result = _plain(registry.explore_published(model, mutant, limits, symmetric=symmetry))
    elif limits:
        raise BadInput(f"model {model} takes no --set; packed models do")
    elif model in [beside["name"] for beside in list_beside()]:
        if reduction is not None or symmetry:
            raise BadInput(
                f"model {model} takes no --reduction and no --symmetry; the models of the table's protocol do"
            )
        result = _plain(explore_beside(model, mutant))
    else:
        result = _plain(registry.explore(model, mutant, reduction, symmetric=symmetry))
    if as_json:
        Output(as_json).json(result)
        return _status(result, mutant)
    title = model if mutant is None else f"{model} with mutant {mutant}"
    states, seconds, cpu = result["states"], result["seconds"], result["cpu_seconds"]
    of_core = f", {states / cpu:,.0f}/s of one core" if cpu else ""
    print(
        f"{title}: {states:,} states, {result['transitions']:,} transitions in {seconds:.2f} s"
        f"{_speed(states, seconds)}{of_core}"
    )
    if result["trace"]:
        print("\nshortest counterexample:\n")
        print("\n".join(result["trace"]))
        print()
    for warning in result["warnings"]:
        print(f"warning: {warning}")
    _print_verdict(mutant, result)
    return _status(result, mutant)


@app.command("reductions")
def reductions(models: Models = None, as_json: Json = False) -> int:
    """Count the states of models by how many are left out; by default of those of quorums and reads."""
    from replitree_verify import registry
    from replitree_verify.engine.reductions import compare

    compared = [compare(model) for model in map(registry.find_model, models or registry.compared())]
    found = [_plain(each) | {"times_fewer": round(each.times_fewer, 1)} for each in compared]
    if as_json:
        Output(as_json).json(found)
    else:
        titles = ("name", "plain", "joined", "ample", "least", "times_fewer", "permutations", "cpu_seconds")
        Output(as_json).table("reductions", titles, [tuple(str(each[title]) for title in titles) for each in found])
    return 0 if all(each["agree"] for each in found) else 1


@app.command("simulate")
def simulate(
    seeds: Seeds = "0:100",
    mutant: Mutant = None,
    workers: Workers = 1,
    hours: Hours = 0,
    tablets: Tablets = False,
    shards: Shards = 0,
    replicas: Replicas = 0,
    as_json: Json = False,
) -> int:
    """Run clusters with faults drawn from seeds; exit 0 when nothing is violated, or when the mutant is caught."""
    first, end = parse_seeds(seeds)
    if tablets and hours:
        raise BadInput("--hours is for clusters; a history of a tablet ends when nothing is left to happen")
    if (tablets or hours) and shards:
        raise BadInput("--shards goes with neither --tablets nor --hours: its runs last as long as their seeds say")
    if replicas and not shards:
        raise BadInput("--replicas says how many replicas each shard has: say --shards, too")
    if shards:
        from replitree_verify.small_models import simulate_sharded

        result = _plain(simulate_sharded(first, end, shards, replicas, mutant, workers))
    elif tablets:
        from replitree_verify.small_models import simulate_tablets

        result = _plain(simulate_tablets(first, end, mutant, workers))
    else:
        from replitree_verify import registry

        result = _plain(registry.simulate(first, end, mutant, workers, hours))
    if as_json:
        Output(as_json).json(result)
        return _status(result, mutant)
    speed = _speed(result["states"], result["seconds"])
    took = f"{result['states']:,} events in {result['seconds']:.2f} s{speed}"
    print(f"{end - first:,} seeds, {took}; digest {result['digest']}")
    print("rare branches, and in how many seeds they were seen:")
    for branch, count in sorted(result["probes"].items(), key=lambda item: (-item[1], item[0])):
        print(f"  {count:>7,}  {branch}")
    if result["trace"]:
        print("\nthe first violation:\n")
        print("\n".join(result["trace"]))
        print()
    _print_verdict(mutant, result)
    return _status(result, mutant)


def parse_settings(texts: list[str]) -> dict[str, int]:
    """Read ``NAME=N``, any number of them.

    Raises
    ------
    BadInput
        One is not of that form.

    >>> parse_settings(["replicas=5", "records=7"])
    {'replicas': 5, 'records': 7}
    """
    found = [re.fullmatch(r"([a-z_]+)=(\d{1,9})", text.strip()) for text in texts]
    for text, match in zip(texts, found, strict=True):
        if match is None:
            raise BadInput(f"--set {text}: expected a name and a number, such as replicas=5")
    return {match[1]: int(match[2]) for match in found if match}


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


def _status(result: Mapping[str, Any], mutant: str | None) -> int:
    # A mutant must be caught: then a violation is success.
    return 0 if bool(result["violations"]) == (mutant is not None) else 1


def _speed(count: int, seconds: float) -> str:
    return f" ({count / seconds:,.0f}/s)" if seconds else ""


def _print_verdict(mutant: str | None, result: Mapping[str, Any]) -> None:
    for violation in result["violations"]:
        seed = f"seed {violation['seed']}: " if "seed" in violation else ""
        print(f"violated: {seed}{violation['what']}")
    if mutant is None:
        print("VIOLATED" if result["violations"] else "no violation")
    else:
        print("caught" if result["violations"] else "NOT CAUGHT: nothing saw this mutant")


def _plain(value: Any) -> dict[str, Any]:
    """Return what the registry gave as dictionaries and lists."""
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(value, enc_hook=str)
    return plain
