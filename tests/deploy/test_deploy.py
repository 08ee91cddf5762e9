"""The files below deploy/ fit the server that is here: metrics, settings, codes of the doctor, options."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import tomllib
from typing import Any

import pytest

from replitree.cli.main import command_line
from replitree.replica.kit.config import ENVIRONMENT, NO_FILE, environment_settings, load_config
from tests.deploy.files import (
    ALERT_TESTS,
    COMPOSE,
    DEPLOY,
    OF_PROMETHEUS,
    exposed,
    expressions,
    named_metrics,
    panels,
    read_yaml,
    rules,
)
from tests.project.source import ROOT
from tests.replica.inprocess import InProcessCluster

SEVERITIES = {"critical", "warning", "notice"}
CODE = re.compile(r"`([a-z]+(?:-[a-z]+)*)`")


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """What a server shows that has a table."""
    cluster = InProcessCluster(tmp_path_factory.mktemp("metrics"), replicas=1)
    try:
        cluster.create_table()
        status, found = cluster.nodes[0].request("GET", "/metrics")
    finally:
        cluster.close()
    assert status == 200
    return exposed(found)


def test_every_metric_that_an_alert_or_the_dashboard_names_exists(metrics: set[str]) -> None:
    assert sorted(named_metrics() - metrics) == []


def test_every_expression_names_a_metric() -> None:
    names = named_metrics() | OF_PROMETHEUS
    assert [each for each in expressions() if not any(re.search(rf"\b{name}\b", each) for name in names)] == []


def codes_in(page: str, heading: str) -> set[str]:
    """The codes in the last column of the table below a heading of a page."""
    section = (ROOT / "docs" / page).read_text(encoding="utf-8").partition(f"{heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return {code for line in lines for code in CODE.findall(line.rstrip("| ").rpartition("|")[2])}


def test_every_code_of_the_doctor_has_an_alert_or_a_reason_why_not() -> None:
    source = (ROOT / "src/replitree/client/admin").glob("doctor_*.py")
    said = set(re.findall(r'"([a-z]+(?:-[a-z]+)*)"', "\n".join(each.read_text(encoding="utf-8") for each in source)))
    every = codes_in("health.md", "## The doctor")
    alerts = {rule["labels"]["code"] for rule in rules()}
    without = codes_in("monitoring.md", "### Codes without an alert")
    states = {"starting", "recovering", "read-only", "halted", "stopped"}
    assert alerts - states <= said
    assert alerts <= every
    assert alerts & without == set()
    assert alerts | without == every


def test_every_alert_says_what_is_so_and_what_to_do() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))
    for rule in rules():
        assert rule["labels"]["severity"] in SEVERITIES, rule
        assert set(rule["annotations"]) == {"summary", "description"}, rule
        assert rule["for"], rule


def test_every_alert_is_made_to_fire_in_a_test_of_promtool() -> None:
    fired = {
        name
        for test in read_yaml("prometheus/alerts.test.yml")["tests"]
        for asked in test["promql_expr_test"]
        if asked["exp_samples"]
        for name in re.findall(r'alertname="(\w+)"', asked["expr"])
    }
    assert fired == {rule["alert"] for rule in rules()}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian: prometheus) evaluates the alerts")
@pytest.mark.parametrize(
    "arguments",
    [
        *(("check", "rules", "alerts.yml"), ("test", "rules", "alerts.test.yml")),
        ("check", "config", "--syntax-only", "prometheus.yml"),  # the file of the token is in the container only
    ],
)
def test_promtool_lets_every_alert_fire(arguments: tuple[str, ...]) -> None:
    ran = subprocess.run(
        ["promtool", *arguments], cwd=ALERT_TESTS.parent, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_dashboard_has_a_description_for_every_panel_and_no_two_of_one_id() -> None:
    found = panels()
    assert len({panel["id"] for panel in found}) == len(found)
    for panel in found:
        assert panel["title"], panel["id"]
        assert panel["description"], panel["id"]
        assert all(target["legendFormat"] for target in panel["targets"]), panel["title"]


# --- containers -----------------------------------------------------------------------------------------------------------


def service_environment(name: str, services: dict[str, Any]) -> dict[str, str]:
    """Variables of a service, with those of the image."""
    text = (DEPLOY / "container/Containerfile").read_text(encoding="utf-8")
    image = dict(re.findall(rf"({ENVIRONMENT}\w+)=(\S+)", text))
    return {**image, **services[name].get("environment", {})}


def test_the_replicas_of_compose_have_a_right_configuration() -> None:
    services = read_yaml("container/compose.yaml")["services"]
    replicas = [name for name in services if re.fullmatch(r"r\d", name)]
    assert len(replicas) == 3
    configs = [
        load_config(NO_FILE, service_environment(name, services) | {"REPLITREE_SET_LOG_FORMAT": "json"})
        for name in replicas
    ]
    assert [config.name for config in configs] == replicas
    assert [config.advertise for config in configs] == [f"{name}:9000" for name in replicas]
    assert {config.zookeeper for config in configs} == {services["client"]["environment"]["REPLITREE_URL"]}
    asked = read_yaml("prometheus/prometheus.yml")["scrape_configs"]
    assert {job["job_name"]: job["static_configs"][0]["targets"] for job in asked}["replitree"] == [
        config.advertise for config in configs
    ]


def test_everything_that_compose_refers_to_is_there() -> None:
    found = read_yaml("container/compose.yaml")
    services = found["services"]
    for name, service in services.items():
        assert set(service.get("networks", [])) <= set(found["networks"]), name
        assert set(service.get("secrets", [])) <= set(found["secrets"]), name
        assert set(service.get("depends_on", {})) <= set(services), name
        assert "latest" not in service["image"] or service["image"] == "replitree:latest", name
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source in found["volumes"] or (COMPOSE.parent / source).exists(), volume
        is_watched = "healthcheck" in service or service["image"] == "replitree:latest"
        assert is_watched, name


def test_no_secret_stands_in_compose_and_only_this_machine_reaches_it() -> None:
    found = read_yaml("container/compose.yaml")
    assert found["networks"]["cluster"]["internal"]
    assert all(set(secret) == {"file"} for secret in found["secrets"].values())
    ports = [port for service in found["services"].values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in ports)
    words = [key for service in found["services"].values() for key in service.get("environment", {})]
    assert [key for key in words if "PASSWORD" in key and not key.endswith("__FILE")] == []


def test_the_image_copies_what_a_wheel_is_made_of() -> None:
    text = (DEPLOY / "container/Containerfile").read_text(encoding="utf-8")
    copied = {word for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE) for word in line.split()[:-1]}
    assert all((ROOT / name).exists() for name in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"], "src", "tools"}
    assert needed <= copied
    assert "USER replitree" in text


# --- systemd --------------------------------------------------------------------------------------------------------------


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(DEPLOY / "systemd/replitree.service")
    return parser


def test_the_unit_checks_first_and_waits_until_the_server_is_ready() -> None:
    service = unit()["Service"]
    assert service["Type"] == "notify"
    assert service["TimeoutStartSec"] == "infinity"
    command = command_line().get_command(None, "server")  # type: ignore[attr-defined]
    options = {option for parameter in command.params for option in parameter.opts}
    for key in ("ExecStartPre", "ExecStart"):
        program, *words = service[key].split()
        assert (program.rpartition("/")[2], words[0]) == ("replitree", "server")
        assert {word for word in words if word.startswith("--")} <= options


def test_the_configuration_of_the_unit_is_right() -> None:
    config = load_config(DEPLOY / "systemd/server.toml", {})
    assert config.data == f"/var/lib/{unit()['Service']['StateDirectory']}"
    assert environment_settings({}) == {}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze reads the unit")
def test_systemd_understands_the_unit() -> None:
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(DEPLOY / "systemd/replitree.service")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = [line for line in ran.stderr.splitlines() if "replitree.service" in line]
    assert [line for line in lines if "is not executable" not in line] == []
