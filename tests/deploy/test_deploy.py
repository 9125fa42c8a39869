"""The files under deploy cannot rot: they parse, their commands and variables exist, their metrics are exposed."""

import asyncio
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

import click
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from prometheus_client.parser import text_string_to_metric_families
from tests.api.api_support import caller_for, shop

from duly.api.routes import HEALTH_ROUTES, ROUTES
from duly.cli import cli
from duly.cli.settings import VARIABLES

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
REDIS_COMPOSE = yaml.safe_load((DEPLOY / "redis" / "compose.yaml").read_text(encoding="utf-8"))
PROMETHEUS = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
ALERTS = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))
DASHBOARD = json.loads((DEPLOY / "grafana" / "duly.json").read_text(encoding="utf-8"))
UNIT = DEPLOY / "systemd" / "duly.service"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")

KNOWN_VARIABLES = {name for names in VARIABLES.values() for name in names} | {
    "POSTGRES_DSN",
    "REDIS_URL",
    "ETCD_ENDPOINTS",
}


def documents(path):
    return [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each is not None]


MANIFESTS = [each for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")) for each in documents(path)]
PODS = [each for each in MANIFESTS if each["kind"] == "Deployment"]
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
PANELS = DASHBOARD["panels"]


# --- commands


def refused(arguments: list[str]) -> str | None:
    """Why the command line would not take these arguments; nothing is run."""
    command: click.Command = cli
    context = click.Context(cli)
    try:
        while isinstance(command, click.Group):
            found = command.get_command(context, arguments[0])
            if found is None:
                return f"there is no command {arguments[0]!r}"
            context = click.Context(found, parent=context, info_name=arguments[0])
            command, arguments = found, arguments[1:]
        command.parse_args(context, list(arguments))
    except (click.ClickException, IndexError) as error:
        return str(error)
    return None


def ours(service: dict) -> bool:
    return service.get("image") == "duly"


def commands_in_compose():
    for name, service in {**COMPOSE["services"], **REDIS_COMPOSE["services"]}.items():
        if not ours(service):
            continue
        if "entrypoint" not in service:
            yield name, service["command"]
            continue
        [script] = service["command"]
        for found in re.findall(r"\bduly ([^;|>&]+)", script):
            yield name, shlex.split(found)


def commands_in_manifests():
    for manifest in PODS:
        for container in manifest["spec"]["template"]["spec"]["containers"]:
            yield manifest["metadata"]["name"], container["args"]


def commands_in_alerts():
    for rule in RULES:
        text = " ".join(rule["annotations"].values())
        for found in re.findall(r"`duly ([^`]+)`", text):
            yield rule["alert"], shlex.split(re.sub(r"{{[^}]*}}", "name", found))


def commands_in_unit():
    for found in re.findall(r"^ExecStart=\S+/duly (.+)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE):
        yield UNIT.name, shlex.split(found)


def commands_in_page():
    for found in re.findall(r"^\$ (?:[A-Z_]+=\S+ )*duly (.+)$", PAGE, re.MULTILINE):
        yield "docs/deploying.md", shlex.split(found, comments=True)


COMMANDS = [
    *commands_in_compose(),
    *commands_in_manifests(),
    *commands_in_alerts(),
    *commands_in_unit(),
    *commands_in_page(),
]


@pytest.mark.parametrize(
    ("where", "arguments"), COMMANDS, ids=lambda value: " ".join(value) if isinstance(value, list) else value
)
def test_every_command_is_one_of_the_command_line(where, arguments):
    assert refused(arguments) is None


def test_a_command_that_does_not_exist_would_be_noticed():
    assert refused(["dance"])
    assert refused(["worker", "--no-such-flag"])
    assert {where for where, _ in COMMANDS} >= {"setup", "scheduler", "worker-1", "worker-2", "duly-worker", UNIT.name}


# --- compose


def test_compose_has_the_whole_stack():
    services = COMPOSE["services"]
    assert {"postgres", "redis", "etcd", "scheduler", "worker-1", "worker-2"} <= services.keys()
    for name, service in services.items():
        for needed, condition in service.get("depends_on", {}).items():
            assert needed in services, f"{name} waits for {needed}"
            if condition["condition"] == "service_healthy":
                assert "healthcheck" in services[needed]
    for name in [name for name, service in services.items() if ours(service)]:
        assert services[name]["environment"].keys() <= KNOWN_VARIABLES | {"LOG_LEVEL"}
        assert "POSTGRES_DSN" in services[name]["environment"]


def test_compose_with_redis_only_has_three_nodes_on_a_server_that_keeps_its_data():
    services = REDIS_COMPOSE["services"]
    nodes = {name: service for name, service in services.items() if ours(service)}
    assert len(nodes) == 3
    assert len({service["environment"]["WORKER_ID"] for service in nodes.values()}) == 3
    for service in nodes.values():
        assert service["environment"].keys() <= KNOWN_VARIABLES | {"LOG_LEVEL"}
        assert service["environment"]["REDIS_URL"] == "redis:6379"
        assert service["depends_on"] == {"redis": {"condition": "service_healthy"}}
        assert (DEPLOY / "redis" / service["build"]["context"]).resolve() == ROOT
    assert "--appendonly" in services["redis"]["command"]
    assert "healthcheck" in services["redis"]


def mounted(service: dict) -> set[str]:
    return {volume.partition(":")[0] for volume in service.get("volumes", [])}


def test_only_what_makes_tokens_and_what_needs_one_has_one():
    services = COMPOSE["services"]
    holders = {
        volume: {name for name, each in services.items() if volume in mounted(each)} for volume in ("admin", "watch")
    }
    assert holders == {"admin": {"setup"}, "watch": {"setup", "prometheus"}}
    [script] = services["setup"]["command"]
    assert re.findall(r"--role (\w+) --name \w+ > /(\w+)/token", script) == [("admin", "admin"), ("viewer", "watch")]
    assert script.startswith("umask 077\n")
    [scrape] = PROMETHEUS["scrape_configs"]
    assert "watch:/secrets:ro" in services["prometheus"]["volumes"]
    assert scrape["authorization"]["credentials_file"] == "/secrets/token"
    for name, service in services.items():
        if name != "setup" and ours(service):
            assert not mounted(service), f"{name} needs no secret from a volume"


def test_ports_are_published_on_loopback_only():
    for service in COMPOSE["services"].values():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:")


def test_the_probes_of_compose_ask_where_the_process_listens():
    for name in ("scheduler", "worker-1", "worker-2"):
        service = COMPOSE["services"][name]
        env = service["environment"]
        port = (env.get("HTTP_ADDR") or env["WORKER_HTTP_ADDR"]).removeprefix(":")
        assert f"127.0.0.1:{port}/readyz" in service["healthcheck"]["test"][-1]


def test_the_image_is_built_from_what_is_there():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [extras] = re.findall(r"^ARG EXTRAS=(\S+)", DOCKERFILE, re.MULTILINE)
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    [app] = re.findall(r"^ARG APP=(\S+)", DOCKERFILE, re.MULTILINE)
    assert (ROOT / app).exists()
    assert refused(json.loads(re.findall(r"^CMD (.+)$", DOCKERFILE, re.MULTILINE)[0])) is None
    for line in re.findall(r"^COPY (?!--)(.+)$", DOCKERFILE, re.MULTILINE):
        *sources, _ = line.split()
        assert all((ROOT / source).exists() for source in sources)


def pins(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}


def needed(name: str, extras: set[str], seen: set[str]) -> set[str]:
    """Everything that a package needs to be installed, as this environment knows it."""
    for text in requires(name) or []:
        requirement = Requirement(text)
        wanted = [{"extra": extra} for extra in extras] or [{"extra": ""}]
        if requirement.marker is None or any(requirement.marker.evaluate(each) for each in wanted):
            key = f"{canonicalize_name(requirement.name)}[{','.join(sorted(requirement.extras))}]"
            if key not in seen:
                seen.add(key)
                needed(requirement.name, requirement.extras, seen)
    return {key.partition("[")[0] for key in seen} - {"duly"}


def test_the_image_is_built_of_pinned_versions_alone():
    pinned = pins(DEPLOY / "constraints.txt")
    assert all(re.fullmatch(r"[0-9][0-9a-z.]*", version) for version in pinned.values())
    assert needed("duly", {"all"}, set()) <= pinned.keys()
    assert "hatchling" in pinned
    developed_with = pins(ROOT / "constraints-dev.txt")
    assert {name: version for name, version in pinned.items() if developed_with.get(name, version) != version} == {}
    installs = re.findall(r"pip (?:install|wheel) [^&]*", DOCKERFILE)
    assert len(installs) == 3
    for command in installs:
        assert "--constraint constraints.txt" in command or "--no-deps" in command, command
    assert "--no-build-isolation" in DOCKERFILE
    assert all(":" in image for image in re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE))


def test_the_image_takes_a_payload_without_a_handler(monkeypatch, tmp_path):
    [app] = re.findall(r"^ARG APP=(\S+)", DOCKERFILE, re.MULTILINE)
    spec = importlib.util.spec_from_file_location("shipped_app", ROOT / app)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    async def use():
        with module.scheduler.override("memory://"):
            async with module.scheduler:
                call = await caller_for(module.scheduler)
                for payload, result in (("order 7", "order 7"), ({"order": 7}, {"order": 7}), ([1, 2], [1, 2])):
                    accepted = await call.post("/jobs", {"payload": payload})
                    assert (accepted.status, accepted.json["status"]) == (201, "pending")
                    assert await module.scheduler._result(accepted.json["id"], 30) == result

    asyncio.run(use())


# --- Kubernetes


def test_manifests_are_of_kinds_that_belong_together():
    kinds = [(each["apiVersion"], each["kind"]) for each in MANIFESTS]
    assert ("apps/v1", "Deployment") in kinds
    assert ("v1", "Service") in kinds
    labels = [pod["spec"]["template"]["metadata"]["labels"].items() for pod in PODS]
    for each in MANIFESTS:
        selector = each.get("spec", {}).get("selector")
        if selector is not None:
            wanted = selector.get("matchLabels", selector).items()
            assert any(wanted <= found for found in labels), each["metadata"]["name"]


@pytest.mark.parametrize("pod", PODS, ids=lambda pod: pod["metadata"]["name"])
def test_pods_are_probed_on_routes_and_ports_that_exist(pod):
    [container] = pod["spec"]["template"]["spec"]["containers"]
    routes = {route.path for route in (ROUTES if container["name"] == "scheduler" else HEALTH_ROUTES)}
    [port] = container["ports"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables.keys() <= KNOWN_VARIABLES
    assert f":{port['containerPort']}" in variables.values()
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        asked = container[probe]["httpGet"]
        assert asked["path"] in routes
        assert asked["port"] == port["name"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_the_settings_of_the_cluster_exist():
    [config] = [each for each in MANIFESTS if each["kind"] == "ConfigMap"]
    assert config["data"].keys() <= KNOWN_VARIABLES


# --- systemd


def test_the_unit_is_one_that_systemd_takes(tmp_path):
    text = UNIT.read_text(encoding="utf-8")
    sections = re.findall(r"^\[(\w+)\]$", text, re.MULTILINE)
    assert sections == ["Unit", "Service", "Install"]
    variables = re.findall(r"(\w+)=", " ".join(re.findall(r"^Environment=(.+)$", text, re.MULTILINE)))
    assert set(variables) <= KNOWN_VARIABLES
    assert "\nUMask=0077\n" in text
    assert "\nStateDirectoryMode=0700\n" in text
    analyze = shutil.which("systemd-analyze")
    if analyze is None:  # what follows is systemd's own opinion, where there is one
        return
    here = Path(sys.executable).with_name("duly")
    copy = tmp_path / UNIT.name
    copy.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={here}", text, flags=re.MULTILINE), encoding="utf-8")
    done = subprocess.run([analyze, "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False)
    about_us = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert not about_us


# --- metrics

METRIC = re.compile(r"\bduly_\w+")


async def exposed() -> dict[str, set[str]]:
    """What a real node with a run behind it exposes: every sample's name, with the labels it has."""
    scheduler = shop("memory://")
    async with scheduler:
        call = await caller_for(scheduler, "viewer")
        await (await scheduler.submit("note", {"payload": 1})).result(timeout=30)
        await scheduler.submit("note", {"payload": 2}, delay=3600)
        text = (await call.get("/metrics/prometheus")).body.decode()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


EXPRESSIONS = [rule["expr"] for rule in RULES] + [target["expr"] for panel in PANELS for target in panel["targets"]]


async def test_every_metric_of_dashboard_and_alerts_is_one_that_a_node_exposes():
    known = await exposed()
    for expression in EXPRESSIONS:
        for name in METRIC.findall(expression):
            assert name in known, expression


async def test_every_label_that_is_asked_for_is_one_that_the_metric_has():
    known = await exposed()
    for expression in EXPRESSIONS:
        names = METRIC.findall(expression)
        labels = {"instance", "job", "le"}.union(*(known[name] for name in names))
        grouped = [each.strip() for group in re.findall(r"\bby \(([^)]*)\)", expression) for each in group.split(",")]
        assert set(grouped) <= labels, expression
        for name, selector in re.findall(r"\b(duly_\w+){([^}]*)}", expression):
            assert set(re.findall(r"(\w+)=", selector)) <= known[name], expression


def test_the_dashboard_leaves_no_metric_of_duly_out():
    shown = {re.sub(r"_(bucket|sum|count|total)$", "", name) for each in EXPRESSIONS for name in METRIC.findall(each)}
    documented = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
    for name in re.findall(r"`(duly_\w+)`", documented):
        assert re.sub(r"_total$", "", name) in shown


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_are_balanced(expression):
    for opening, closing in ("()", "[]", "{}"):
        assert expression.count(opening) == expression.count(closing)


def test_alerts_say_what_is_wrong_and_what_to_do():
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names)
    for rule in RULES:
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
        assert {"summary", "action"} <= rule["annotations"].keys()
    assert {"DulyLeaderChanged", "DulyRunsLate", "DulyRunsMissed", "DulyRunsFailed"} <= set(names)


def test_panels_do_not_lie_on_top_of_each_other():
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


def test_prometheus_asks_every_process_of_compose():
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    [scrape] = config["scrape_configs"]
    assert scrape["metrics_path"] in {route.path for route in HEALTH_ROUTES}
    assert scrape["honor_labels"], "otherwise the label `job` would be the scraper's"
    [targets] = scrape["static_configs"]
    addresses = {
        f"{name}{service['environment'].get('HTTP_ADDR') or service['environment'].get('WORKER_HTTP_ADDR')}"
        for name, service in COMPOSE["services"].items()
        if ours(service) and "command" in service and "entrypoint" not in service
    }
    assert set(targets["targets"]) == addresses
    assert all((DEPLOY / "prometheus" / file).exists() for file in config["rule_files"])
