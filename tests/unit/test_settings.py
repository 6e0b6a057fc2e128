"""Settings: what wins over what, and what is refused."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from cloud_ml.errors import InvalidRequest
from cloud_ml.settings import Settings, load
from cloud_ml.settings.jobs import EngineSettings, most_tasks

PROJECT = Path(__file__).parents[2]


def test_without_any_source_the_defaults_stand() -> None:
    assert load() == Settings()


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "cloudml.toml"
    file.write_text("[engine]\nstop_grace_s = 1.0\ntenant_uid_base = 5\n[server]\nport = 1\n")
    environment = {
        "CLOUDML_ENGINE_STOP_GRACE_S": "2.5",
        "CLOUDML_SERVER_PORT": "2",
        "HOME": "/nowhere",
    }
    settings = load(file, environment, {"server": {"port": 3, "host": None}})
    assert (
        settings.engine.stop_grace_s,
        settings.engine.tenant_uid_base,
        settings.server.port,
    ) == (2.5, 5, 3)
    assert settings.server.host == "127.0.0.1"


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", True), ("true", True), ("YES", True), ("0", False), ("False", False), ("no", False)],
)
def test_switches_in_the_environment(text: str, value: bool) -> None:
    assert load(environment={"CLOUDML_API_LEGACY_SIGNATURES": text}).api.legacy_signatures is value


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        (
            {"CLOUDML_ENGINE_STOP_GRACE_S": "soon"},
            ["CLOUDML_ENGINE_STOP_GRACE_S", "soon", "a number"],
        ),
        ({"CLOUDML_SERVER_PORT": "http"}, ["CLOUDML_SERVER_PORT", "http", "a whole number"]),
        ({"CLOUDML_SERVER_PORT": "99999"}, ["server.port", "99999", "65535"]),
        (
            {"CLOUDML_SERVER_EVENTS_PER_RECORD": "9"},
            ["server.events_per_record", "9", "from 10 to 1000"],
        ),
        (
            {"CLOUDML_SERVER_EVENTS_PER_RECORD": "1001"},
            ["server.events_per_record", "1001", "from 10 to 1000"],
        ),
        (
            {"CLOUDML_SERVER_BEHIND_PROXY": "perhaps"},
            ["SERVER_BEHIND_PROXY", "perhaps", "yes or no"],
        ),
        (
            {"CLOUDML_ENGINE_SANDBOX": "nne"},
            ["engine.sandbox", "nne", "auto, require, landlock, none"],
        ),
        ({"CLOUDML_ENGINE_CGROUPS": "v2"}, ["engine.cgroups", "v2", "auto, require, none"]),
        ({"CLOUDML_ENGINE_NETWORK": "all"}, ["engine.network", "all", "host, none"]),
        ({"CLOUDML_SERVER_LOG_FORMAT": "xml"}, ["server.log_format", "xml", "text"]),
        ({"CLOUDML_API_GPU_MISSING": "pretend"}, ["api.gpu_missing", "pretend", "ignore"]),
        ({"CLOUDML_CONTROLLER_WORKERS": "0"}, ["controller.workers", "0", "1"]),
        ({"CLOUDML_ENGINE_STOP_GRACE_S": "-1"}, ["engine.stop_grace_s", "-1", "0"]),
        ({"CLOUDML_ENGINE_STOP_GRACE_S": "nan"}, ["engine.stop_grace_s", "nan"]),
        ({"CLOUDML_ENGINE_START_TIMEOUT_S": "inf"}, ["engine.start_timeout_s", "inf"]),
        ({"CLOUDML_ENGINE_DEFAULT_MEMORY": "100MB"}, ["engine.default_memory", "100MB", "100M"]),
        ({"CLOUDML_ENGINE_DISK_RESERVE": "lots"}, ["engine.disk_reserve", "lots", "100M"]),
        ({"CLOUDML_ENGINE_ZYGOTE_MEMORY": ""}, ["engine.zygote_memory", "100M"]),
        ({"CLOUDML_ENGINE_ZYGOTE_IDLE_S": "0"}, ["engine.zygote_idle_s", "from 1 up"]),
        ({"CLOUDML_ENGINE_DISK_PERIOD_S": "0"}, ["engine.disk_period_s", "0.1"]),
    ],
)
def test_a_bad_value_is_refused_with_its_name_and_what_is_allowed(
    environment: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        load(environment=environment)
    assert [word for word in words if word not in refused.value.message] == []


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [
        ("CLOUDML_ENGINE_SANDBOXX", "CLOUDML_ENGINE_SANDBOX"),
        ("CLOUDML_SERVER_PROT", "CLOUDML_SERVER_PORT"),
        ("CLOUDML_SERVER_DATADIR", "CLOUDML_SERVER_DATA_DIR"),
        ("CLOUDML_SERVER_" + "A" * 100_000, ""),
    ],
)
def test_a_misspelt_variable_is_refused_with_the_nearest_name(variable: str, nearest: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        load(environment={variable: "require"})
    assert variable[:100] in refused.value.message
    assert (f"did you mean {nearest}?" in refused.value.message) == bool(nearest)
    assert len(refused.value.message) < 1000


def test_no_variable_of_clients_jobs_and_tests_is_refused() -> None:
    """A server may be started inside a job, or beside a client."""
    texts = [
        path.read_text(encoding="utf-8")
        for folder in ("src", "docs", "tests", "benchmarks")
        for ending in ("py", "md", "sh", "toml")
        for path in (PROJECT / folder).rglob(f"*.{ending}")
        if path != Path(__file__)
    ]
    found = {name for text in texts for name in re.findall(r"\bCLOUDML_[A-Z0-9_]+[A-Z0-9]\b", text)}
    settings = {
        f"CLOUDML_{theme.name}_{setting.name}".upper()
        for theme in fields(Settings)
        for setting in fields(getattr(Settings(), theme.name))
    }
    examples = {"CLOUDML_ENGINE_SANDBOXX"}  # of a misspelt one
    others = found - settings - examples
    assert {"CLOUDML_TOKEN", "CLOUDML_TASK_DIR", "CLOUDML_STORAGE", "CLOUDML_METRICS"} <= others
    assert load(environment=dict.fromkeys(others, "x")) == Settings()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CLOUDML_SERVER_SERVICE_HOST", "10.0.0.1"),
        ("CLOUDML_SERVER_SERVICE_PORT", "80"),
        ("CLOUDML_SERVER_SERVICE_PORT_HTTP", "80"),
        ("CLOUDML_SERVER_PORT", "tcp://10.0.0.1:80"),
        ("CLOUDML_GATEWAY_PORT", "tcp://10.0.0.1:80"),
        ("CLOUDML_GATEWAY_PORT_80_TCP_ADDR", "10.0.0.1"),
    ],
)
def test_variables_that_kubernetes_sets_for_a_service_are_no_settings(
    variable: str, value: str
) -> None:
    assert load(environment={variable: value}) == Settings()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[engine]\nsandbx = "none"\n', ["engine.sandbx", "did you mean sandbox"]),
        ("[engin]\nstop_grace_s = 1.0\n", ["engin", "engine"]),
        ('[engine]\nstop_grace_s = "1"\n', ["engine.stop_grace_s"]),
        ("engine = 3\n", ["engine is 3", "[engine]"]),
        ("port = 9000\n", ["port stands above", "below the line [server]"]),
        ("[engine]\nmax_running_jobs = 3\n", ["engine.max_running_jobs", "[controller]"]),
        ('[server]\nsandbox = "none"\n', ["server.sandbox", "belongs below [engine]"]),
        ("[engine]\ndefault_cpu = -1\n", ["engine.default_cpu is -1", "above 0", "in quotes"]),
        ("[engine]\ndefault_cpu = 2\n", ['in quotes: default_cpu = "2"']),
        ("[server]\ndata_dir = 2.5\n", ['in quotes: data_dir = "2.5"']),
        ("[engine\n", ["cloudml.toml"]),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str, words: list[str]) -> None:
    file = tmp_path / "cloudml.toml"
    file.write_text(text)
    with pytest.raises(InvalidRequest) as refused:
        load(file)
    message = refused.value.message + (refused.value.hint or "") + str(refused.value.allowed)
    assert [word for word in words if word not in message] == []


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"absent\.toml"):
        load(tmp_path / "absent.toml")


def test_folders_follow_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    assert load().data_dir == tmp_path / "xdg" / "cloudml"
    moved = load(options={"server": {"data_dir": str(tmp_path)}})
    assert (moved.environments_home, moved.runtimes_dir) == (
        tmp_path / "environments",
        tmp_path / "runtimes",
    )
    named = load(
        options={"environments": {"home": str(tmp_path / "e"), "runtimes_dir": str(tmp_path / "r")}}
    )
    assert (named.environments_home, named.runtimes_dir) == (tmp_path / "e", tmp_path / "r")


def test_a_file_that_an_editor_of_windows_has_saved(tmp_path: Path) -> None:
    file = tmp_path / "cloudml.toml"
    file.write_bytes(b"\xef\xbb\xbf[server]\r\nport = 7\r\n")
    assert load(file).server.port == 7


def test_a_file_that_is_not_utf8_is_told_by_its_line(tmp_path: Path) -> None:
    file = tmp_path / "cloudml.toml"
    file.write_bytes(b'[server]\ndata_dir = "/srv/d\xfc"\n')
    with pytest.raises(InvalidRequest, match="line 2 is not UTF-8 text"):
        load(file)


@pytest.mark.parametrize(
    ("ports", "most"), [("20000-29999", 64), ("20000-20003", 4), ("20000-20001, 20001", 2)]
)
def test_no_job_has_more_tasks_than_there_are_ports(ports: str, most: int) -> None:
    assert most_tasks(EngineSettings(ports=ports)) == most


APART = {
    "CLOUDML_APPLICATIONS_DOMAIN": "apps-cloudml.net",
    "CLOUDML_APPLICATIONS_API_NAME": "cloudml.example.com",
    "CLOUDML_SERVER_BEHIND_PROXY": "yes",
}


def test_applications_may_have_a_domain_apart_from_the_api() -> None:
    settings = load(environment=APART)
    assert (settings.applications.local, settings.applications_host) == (False, "127.0.0.1")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"DOMAIN": "cloudml.example.com"}, ["applications.domain", "parent, child or sibling"]),
        ({"DOMAIN": "apps.cloudml.example.com"}, ["applications.domain", "parent, child"]),
        ({"DOMAIN": "example.com"}, ["applications.domain", "parent, child or sibling"]),
        ({"DOMAIN": "apps.example.com"}, ["applications.domain", "parent, child or sibling"]),
        ({"DOMAIN": "a.apps.example.com"}, ["applications.domain", "parent, child or sibling"]),
        ({"DOMAIN": "Apps_1"}, ["applications.domain", "Apps_1", "a name of a host"]),
        ({"API_NAME": ""}, ["applications.api_name", "where applications.domain is set"]),
        ({"PORT": "8700"}, ["applications.port", "8700", "gateway.ports (8600-8999)"]),
        ({"DOMAIN": "localhost", "HOST": "0.0.0.0"}, ["applications.host", "loopback"]),
        ({"IDLE_S": "0"}, ["applications.idle_s", "from 1 up"]),
    ],
)
def test_applications_that_could_reach_the_api_are_refused(
    changes: dict[str, str], words: list[str]
) -> None:
    named = {f"CLOUDML_APPLICATIONS_{name}": value for name, value in changes.items()}
    with pytest.raises(InvalidRequest) as refused:
        load(environment=APART | named)
    assert [word for word in words if word not in refused.value.message] == []


def test_a_domain_of_applications_needs_tls() -> None:
    with pytest.raises(InvalidRequest, match="with server"):
        load(environment=APART | {"CLOUDML_SERVER_BEHIND_PROXY": "no"})
