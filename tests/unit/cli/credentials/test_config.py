from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from cloud_ml.auth import bearer
from support.fake_api import FakeApi
from support.fake_server import ACCESS_KEY, SECRET_KEY, FakeServer, Reply, serving

if TYPE_CHECKING:
    from unit.cli.conftest import Run


def _init(run: Run, name: str, endpoint: str, *more: str) -> None:
    arguments = ("--endpoint", endpoint, "--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY)
    result = run("config", "init", name, *arguments, *more)
    assert result.exit_code == 0, result.output


def test_init_by_options_then_use(offline: Run, server: FakeServer, settings: Path) -> None:
    _init(offline, "default", server.endpoint)
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600
    assert offline("org_id").stdout == "1\n"


def test_init_asks_for_what_is_missing(offline: Run, server: FakeServer, settings: Path) -> None:
    result = offline("config", "init", text=f"{server.endpoint}\n{ACCESS_KEY}\n{SECRET_KEY}\n")
    assert result.exit_code == 0, result.output
    assert "knows you as admin of default" in result.stderr
    assert json.loads(settings.read_text())["contexts"]["default"]["secret_key"] == SECRET_KEY
    assert SECRET_KEY not in result.output


def test_a_key_that_the_server_refuses_is_not_kept(
    offline: Run, server: FakeServer, settings: Path
) -> None:
    arguments = ("--endpoint", server.endpoint, "--access-key", "wrong", "--secret-key", "wrong")
    assert "(code: unauthenticated)" in offline("config", "init", *arguments).stderr
    assert not settings.exists()
    assert offline("config", "init", *arguments, "--no-check").exit_code == 0
    server.bad_signatures.clear()


def test_a_server_that_is_not_there_yet_is_no_reason_to_refuse(offline: Run) -> None:
    _init(offline, "later", "http://127.0.0.1:1")
    assert "later" in offline("config", "show").stdout


def test_contexts(offline: Run, server: FakeServer, settings: Path) -> None:
    _init(offline, "one", server.endpoint)
    _init(offline, "two", "http://127.0.0.1:1", "--no-check", "--no-use")
    shown = offline("config", "show")
    assert SECRET_KEY not in shown.output
    assert [line.split()[0] for line in shown.stdout.splitlines()[1:]] == ["*", "two"]
    assert json.loads(offline("config", "show", "-o", "json").stdout)["current"] == "one"
    assert offline("-k", "one", "org_id").stdout == "1\n"
    for verb, name in (("use", "two"), ("set_default", "one")):
        assert offline("config", verb, name).exit_code == 0
        assert json.loads(settings.read_text())["current"] == name
    assert "Did you mean two?" in offline("config", "use", "tow").stderr
    assert offline("config", "delete", "one").exit_code == 0
    assert json.loads(settings.read_text())["current"] == "two"
    assert list(json.loads(settings.read_text())["contexts"]) == ["two"]


def test_nothing_to_show(offline: Run) -> None:
    assert "cloudml config init" in offline("config", "show").stderr


def test_nobody_to_ask_is_told_what_to_give(offline: Run) -> None:
    result = offline(
        "config", "init", "--endpoint", "http://127.0.0.1:1", "--access-key", "a", text=""
    )
    assert result.exit_code == 2
    assert "give --secret-key or set CLOUDML_SECRET_KEY" in result.stderr


def test_what_answers_but_is_no_server_of_ours_is_not_kept(offline: Run, settings: Path) -> None:
    with serving(lambda _: Reply(404, b"<html>", {"content-type": "text/html"})) as other:
        arguments = (
            "--endpoint",
            other.endpoint,
            "--access-key",
            ACCESS_KEY,
            "--secret-key",
            SECRET_KEY,
        )
        result = offline("config", "init", *arguments)
    assert (result.exit_code, settings.exists()) == (1, False)
    assert "does not look like a Cloud ML server" in result.stderr
    assert "--no-check" in result.stderr


def test_secrets_are_masked_and_variables_that_go_before_are_named(
    offline: Run, server: FakeServer
) -> None:
    _init(offline, "one", server.endpoint)
    shown = offline("config", "list", "-o", "yaml").stdout
    assert "secret_key: '******'" in shown
    assert SECRET_KEY not in shown
    assert offline("config", "list", "-o", "name").stdout == "one\n"
    env: dict[str, str | None] = {"CLOUDML_ENDPOINT": "http://127.0.0.1:1"}
    assert (
        "CLOUDML_ENDPOINT in the environment goes before"
        in offline("config", "show", env=env).stderr
    )


def test_whoami(run: Run) -> None:
    assert "default (1)" in run("whoami").stdout
    assert json.loads(run("whoami", "-o", "json").stdout)["user"] == "admin"
    assert "Scopes" not in run("whoami").stdout


def test_whoami_shows_the_scopes_of_a_token(run: Run, api: FakeApi) -> None:
    api.scopes = ["jobs:read", "storage:write"]
    assert re.search(r"Scopes: +jobs:read, storage:write\n", run("whoami").stdout)


def test_a_token_is_read_from_a_file_and_not_shown(
    offline: Run, settings: Path, tmp_path: Path
) -> None:
    held, token = bearer.new_token()
    (tmp_path / "token.txt").write_text(f"{token}\n")
    given = (
        "config",
        "init",
        "ci",
        "--endpoint",
        "http://127.0.0.1:1",
        "--token-file",
        str(tmp_path / "token.txt"),
    )
    assert offline(*given).exit_code == 0
    assert json.loads(settings.read_text())["contexts"]["ci"] == {
        "endpoint": "http://127.0.0.1:1",
        "token": token,
    }
    for form in ((), ("-o", "json"), ("-o", "yaml")):
        shown = offline("config", "show", *form).output
        assert (held.id in shown, token in shown) == (True, False)
    _init(offline, "ci", "http://127.0.0.1:1")
    assert "token" not in json.loads(settings.read_text())["contexts"]["ci"]
    both = offline(*given, "--access-key", "a")
    assert (both.exit_code, "either a key or --token-file" in both.stderr) == (2, True)
    (tmp_path / "token.txt").write_text("")
    assert "not an access token" in offline(*given).stderr


def test_a_token_of_the_environment_becomes_the_context(offline: Run, settings: Path) -> None:
    _, token = bearer.new_token()
    result = offline(
        "config",
        "init",
        "--endpoint",
        "http://127.0.0.1:1",
        "--no-check",
        env={"CLOUDML_TOKEN": token},
    )
    assert result.exit_code == 0, result.output
    assert json.loads(settings.read_text())["contexts"]["default"]["token"] == token


def test_a_setting_leaves_out_git_and_stays_when_contexts_change(
    offline: Run, server: FakeServer, settings: Path
) -> None:
    result = offline("config", "set", "git", "off")
    assert (result.exit_code, result.stdout) == (0, f"git is off in {settings}\n")
    _init(offline, "one", server.endpoint)
    _init(offline, "two", server.endpoint)
    for words in (("use", "one"), ("set_default", "two"), ("delete", "one")):
        assert offline("config", *words).exit_code == 0
    assert json.loads(settings.read_text())["git"] is False
    assert "Jobs keep nothing of git." in offline("config", "show").stderr
    assert json.loads(offline("config", "show", "-o", "json").stdout)["git"] is False
    assert offline("config", "set", "git", "on").exit_code == 0
    assert "git" not in json.loads(settings.read_text())
    wrong = offline("config", "set", "git", "maybe")
    assert (wrong.exit_code, "allowed is on or off" in wrong.stderr) == (2, True), wrong.stderr
    other = offline("config", "set", "endpoint", "http://127.0.0.1")
    assert (other.exit_code, "cloudml config init NAME" in other.stderr) == (2, True), other.stderr
    settings.write_text('{"git": "no"}')
    refused = offline("config", "show")
    assert "git is 'no'; allowed is true or false" in refused.stderr
