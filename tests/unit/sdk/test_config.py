from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from cloud_ml.auth import bearer
from cloud_ml.client import CloudMlClient
from cloud_ml.errors import InvalidRequest, NotFound
from cloud_ml.sdk.config import (
    Context,
    TokenCredentials,
    config_path,
    read_configuration,
    resolve,
    write_context,
)

ENVIRONMENT = {
    "CLOUDML_ENDPOINT": "http://env:1",
    "CLOUDML_ACCESS_KEY": "env-key",
    "CLOUDML_SECRET_KEY": "env-secret",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "settings" / "config.json"
    write_context("default", Context("http://file:1", "file-key", "file-secret"), path=path)
    write_context(
        "other",
        Context("http://other:1", "other-key", "other-secret"),
        path=path,
        make_current=False,
    )
    return path


def _resolved(**arguments: object) -> tuple[str, str]:
    found = resolve(**arguments)  # type: ignore[arg-type]
    return str(found.endpoint), found.credentials.access_key


def test_arguments_go_before_the_environment_and_that_before_the_file(file: Path) -> None:
    here = {"CLOUDML_CONFIG": str(file)}
    assert _resolved(environment=here) == ("http://file:1", "file-key")
    assert _resolved(environment={**here, **ENVIRONMENT}) == ("http://env:1", "env-key")
    given = {"endpoint": "http://arg:1", "access_key": "arg-key", "secret_key": "s"}
    assert _resolved(environment={**here, **ENVIRONMENT}, **given) == ("http://arg:1", "arg-key")


def test_the_endpoint_and_the_key_may_come_from_different_places(file: Path) -> None:
    environment = {"CLOUDML_CONFIG": str(file), "CLOUDML_ENDPOINT": "http://env:1"}
    assert _resolved(environment=environment) == ("http://env:1", "file-key")


def test_a_context_that_is_named_goes_before_the_environment(file: Path) -> None:
    here = {"CLOUDML_CONFIG": str(file), **ENVIRONMENT}
    assert _resolved(environment=here, context="other") == ("http://other:1", "other-key")
    assert _resolved(environment={**here, "CLOUDML_CONTEXT": "other"}) == (
        "http://env:1",
        "env-key",
    )
    assert (
        _resolved(environment={"CLOUDML_CONFIG": str(file), "CLOUDML_CONTEXT": "other"})[1]
        == "other-key"
    )


def test_without_an_endpoint_the_local_server_is_asked(tmp_path: Path) -> None:
    environment = {**ENVIRONMENT, "CLOUDML_ENDPOINT": "", "CLOUDML_CONFIG": str(tmp_path / "none")}
    assert _resolved(environment=environment)[0] == "http://127.0.0.1:8471"


def test_the_file_is_not_read_when_everything_is_given(tmp_path: Path) -> None:
    broken = tmp_path / "config.json"
    broken.write_text("{")
    assert _resolved(environment={**ENVIRONMENT, "CLOUDML_CONFIG": str(broken)})[1] == "env-key"


def test_half_a_key_is_refused(file: Path) -> None:
    with pytest.raises(InvalidRequest, match="secret_key is missing"):
        resolve(environment={"CLOUDML_CONFIG": str(file), "CLOUDML_ACCESS_KEY": "k"})
    with pytest.raises(InvalidRequest, match="access_key is missing"):
        resolve(environment={"CLOUDML_CONFIG": str(file)}, secret_key="s")


@pytest.mark.parametrize("address", ["http://h:8471", "127.0.0.1:8471", "localhost"])
def test_an_address_in_the_place_of_a_key_is_told(file: Path, address: str) -> None:
    with pytest.raises(InvalidRequest, match="did you mean endpoint="):
        resolve(access_key=address, environment={"CLOUDML_CONFIG": str(file)})


def test_no_key_at_all_says_where_to_put_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as caught:
        resolve(environment={"CLOUDML_CONFIG": str(tmp_path / "none")})
    assert "cloudml config init" in (caught.value.hint or "")


def test_an_unknown_context_gets_near_names(file: Path) -> None:
    with pytest.raises(NotFound) as caught:
        resolve(environment={"CLOUDML_CONFIG": str(file)}, context="othr")
    assert caught.value.hint == "Did you mean other?"


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"contexts": []}', '{"contexts": {"a": 1}}', "\x00", '"x"']
)
def test_a_damaged_file_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(InvalidRequest, match=r"config\.json cannot be read"):
        read_configuration(path)


def test_the_file_is_private_and_complete(file: Path) -> None:
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [one.name for one in file.parent.iterdir()] == ["config.json"]
    document = json.loads(file.read_text())
    assert document["current"] == "default"
    assert document["contexts"]["other"] == {
        "endpoint": "http://other:1",
        "access_key": "other-key",
        "secret_key": "other-secret",
    }


def test_a_file_others_could_read_is_private_after_it_was_written_again(file: Path) -> None:
    file.chmod(0o644)
    write_context("third", Context("http://third:1", "k", "s"), path=file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_configuration(file).current == "third"
    assert set(read_configuration(file).contexts) == {"default", "other", "third"}


def test_a_context_with_a_bad_endpoint_is_not_written(file: Path) -> None:
    before = file.read_bytes()
    with pytest.raises(InvalidRequest, match="endpoint"):
        write_context("bad", Context("ftp://x", "k", "s"), path=file)
    assert file.read_bytes() == before


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequest, match="cannot be"):
        write_context("a", Context("http://a:1", "k", "s"), path=tmp_path / "file" / "config.json")


def test_where_the_file_is() -> None:
    assert config_path({"CLOUDML_CONFIG": "/a/b.json", "XDG_CONFIG_HOME": "/c"}) == Path(
        "/a/b.json"
    )
    assert config_path({"XDG_CONFIG_HOME": "/c"}) == Path("/c/cloudml/config.json")
    assert config_path({}).parts[-3:] == (".config", "cloudml", "config.json")


def test_secrets_are_not_shown() -> None:
    assert "hidden" not in repr(Context("e", "k", "hidden"))
    assert "hidden" not in repr(
        resolve(endpoint="http://a:1", access_key="k", secret_key="hidden", environment={})
    )


HELD, TOKEN = bearer.new_token()


def _token_of(**arguments: object) -> str:
    found = resolve(**arguments).credentials  # type: ignore[arg-type]
    return found.token_id if isinstance(found, TokenCredentials) else found.access_key


def test_a_token_stands_for_a_key_in_each_place(file: Path) -> None:
    here = {"CLOUDML_CONFIG": str(file)}
    assert (
        _token_of(
            environment={**here, "CLOUDML_TOKEN": f" {TOKEN}\r\n"}, endpoint="http://127.0.0.1:1"
        )
        == HELD.id
    )
    assert (
        _token_of(environment={**here, **ENVIRONMENT}, token=TOKEN, endpoint="http://localhost:1")
        == HELD.id
    )
    write_context("ci", Context("https://ml.example.com", token=TOKEN), path=file)
    assert _token_of(environment=here) == HELD.id
    assert (
        _token_of(environment={**here, "CLOUDML_ACCESS_KEY": "k", "CLOUDML_SECRET_KEY": "s"}) == "k"
    )
    assert _token_of(environment={**here, "CLOUDML_TOKEN": ""}, context="other") == "other-key"


@pytest.mark.parametrize("place", ["arguments", "environment", "file"])
def test_a_key_and_a_token_of_one_place_are_refused(tmp_path: Path, place: str) -> None:
    path = tmp_path / "config.json"
    environment = {"CLOUDML_CONFIG": str(path), "CLOUDML_ENDPOINT": "http://127.0.0.1:1"}
    arguments: dict[str, str] = {}
    if place == "arguments":
        arguments = {"access_key": "k", "secret_key": "s", "token": TOKEN}
    elif place == "environment":
        environment |= {"CLOUDML_ACCESS_KEY": "k", "CLOUDML_TOKEN": TOKEN}
    else:
        write_context("default", Context("http://127.0.0.1:1", "k", "s", TOKEN), path=path)
    with pytest.raises(InvalidRequest, match="an access key and a token are both given") as caught:
        resolve(environment=environment, **arguments)
    assert TOKEN not in str(caught.value.document())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TOKEN[:-1], "incomplete"),
        (TOKEN + "x", "further characters"),
        (HELD.id, "is the id of a token"),
        ("cmt2.key.99.x", "only for calls of model services"),
        ("secret-of-another-service", "not an access token"),
    ],
    ids=[
        "cut",
        "longer",
        "id",
        "of calls",
        "another's",
    ],  # the texts differ in each process of the tests
)
def test_a_text_that_is_no_token_is_named_and_not_repeated(text: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        resolve(environment={"CLOUDML_TOKEN": text}, endpoint="https://ml.example.com")
    assert text == HELD.id or text not in str(caught.value.document())


def test_a_token_is_not_sent_unencrypted() -> None:
    for endpoint in (
        "https://ml.example.com",
        "http://127.0.0.1:1",
        "http://[::1]:1",
        "http://localhost",
    ):
        assert _token_of(token=TOKEN, endpoint=endpoint, environment={}) == HELD.id
    for endpoint in (
        "http://ml.example.com",
        "http://10.0.0.1",
        "http://127.0.0.1.example.com",
        "http://127.evil.net",
    ):
        with pytest.raises(InvalidRequest, match="not sent to"):
            resolve(token=TOKEN, endpoint=endpoint, environment={})


def test_a_token_is_not_shown() -> None:
    client = CloudMlClient(token=TOKEN, endpoint="https://ml.example.com")
    for shown in (repr(client), repr(Context("e", token=TOKEN)), repr(client._connection)):
        assert TOKEN not in shown
    assert HELD.id in repr(client)


def test_what_only_a_key_can_make_says_so() -> None:
    client = CloudMlClient(token=TOKEN, endpoint="https://ml.example.com")
    with pytest.raises(InvalidRequest, match="a token for calls of models needs an access key"):
        client.model_token()
    with pytest.raises(InvalidRequest, match="a link needs an access key"):
        client.storage.presign("fds://cloudml/x")
    with pytest.raises(InvalidRequest, match="not sent to"):
        client.predictions("10.0.0.1:8600", "linear").over_http({"x": [1]})


def test_an_endpoint_in_the_place_of_the_key_is_told() -> None:
    with pytest.raises(InvalidRequest, match="did you mean endpoint="):
        CloudMlClient("http://127.0.0.1:8711", "key", "secret")
