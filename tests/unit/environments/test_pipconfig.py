from __future__ import annotations

from pathlib import Path

from cloud_ml.environments.packages import pipconfig


def config_of(text: str, folder: Path, **environ: str) -> pipconfig.PipConfig:
    file = folder / "pip.conf"
    file.write_text(text)
    return pipconfig.read(environ, [file])


def test_files_in_order_then_variables(tmp_path: Path) -> None:
    wheels, cert = tmp_path / "wheels", tmp_path / "cert.pem"
    wheels.mkdir()
    cert.touch()
    first, second = tmp_path / "a.conf", tmp_path / "b.conf"
    first.write_text("[global]\nindex-url = https://first/simple\nno_index = true\n")
    second.write_text(
        f"[install]\nfind-links =\n  {wheels}\n  "
        f"{tmp_path}/missing\nindex-url=https://second/simple\n"
    )
    config = pipconfig.read(
        {"PIP_CERT": str(cert), "PIP_NO_INDEX": "0"}, [first, second, tmp_path / "absent.conf"]
    )
    assert config.index == "https://second/simple"
    assert config.find_links == (str(wheels),)
    assert config.cert == str(cert)
    assert not config.no_index
    assert config.paths == (str(wheels), str(cert))


def test_missing_folders_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    config = config_of(
        f"[global]\nextra-index-url = file://{tmp_path}/there "
        f"file://{tmp_path}/missing\nindex-url=file:///missing\n",
        tmp_path,
    )
    assert config.extra_indexes == (f"file://{tmp_path}/there",)
    assert config.index is None


def test_a_damaged_file_says_nothing(tmp_path: Path) -> None:
    assert config_of("no section\n", tmp_path) == pipconfig.PipConfig()


def test_credentials_stay_with_the_operator(tmp_path: Path) -> None:
    config = config_of(
        "[global]\nindex-url = https://user:secret@host/simple\nproxy = "
        "http://me:secret@proxy:3128\n",
        tmp_path,
        UV_INDEX_PRIVATE_PASSWORD="secret",
        AWS_SECRET_ACCESS_KEY="secret",
        HTTPS_PROXY="http://me:secret@proxy",
    )
    assert (
        config.uv_environment(secrets=True)["UV_DEFAULT_INDEX"] == "https://user:secret@host/simple"
    )
    assert "AWS_SECRET_ACCESS_KEY" not in config.uv_environment(secrets=True)
    for environment in (config.uv_environment(secrets=False), config.job_environment()):
        assert "secret" not in str(environment)
    assert config.uv_environment(secrets=False)["UV_DEFAULT_INDEX"] == "https://host/simple"
    assert "secret" not in str(config.arguments)


def test_what_uv_is_told_itself_wins(tmp_path: Path) -> None:
    config = config_of(
        "[global]\nindex-url = https://pip/simple\n", tmp_path, UV_DEFAULT_INDEX="https://uv/simple"
    )
    assert config.uv_environment(secrets=True)["UV_DEFAULT_INDEX"] == "https://uv/simple"


def test_local_builds_for_the_interpreter_at_hand(tmp_path: Path) -> None:
    for name in (
        "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl",
        "vision-1.0+cpu-cp39-cp39-linux_x86_64.whl",
        "Pure_Thing-1.0+mine-py3-none-any.whl",
        "numpy-2.0-cp311-cp311-linux_x86_64.whl",
    ):
        (tmp_path / name).touch()
    config = pipconfig.PipConfig(find_links=(str(tmp_path), "https://host/wheels"))
    assert config.local_builds("cp311") == {"torch": "2.13.0+cpu", "pure-thing": "1.0+mine"}


def test_the_fingerprint_follows_the_places(tmp_path: Path) -> None:
    assert config_of("", tmp_path).fingerprint == config_of("", tmp_path).fingerprint
    assert (
        config_of("", tmp_path).fingerprint
        != config_of("[global]\nindex-url=https://x\n", tmp_path).fingerprint
    )


def test_the_indexes_of_a_runtime_are_asked_first() -> None:
    config = pipconfig.read({"PIP_EXTRA_INDEX_URL": "https://u:p@b.test/simple"}, []).preferring(
        ("https://a.test",)
    )
    assert (
        config.uv_environment(secrets=True)["UV_INDEX"]
        == "https://a.test https://u:p@b.test/simple"
    )
    assert (
        config.uv_environment(secrets=False)["UV_INDEX"] == "https://a.test https://b.test/simple"
    )
    named = pipconfig.read({"UV_INDEX": "https://c.test"}, [])
    assert (
        named.preferring(("https://a.test",)).uv_environment(secrets=True)["UV_INDEX"]
        == "https://a.test https://c.test"
    )
    assert (
        named.preferring(()).fingerprint
        == named.fingerprint
        != named.preferring(("https://a.test",)).fingerprint
    )


def test_where_no_index_may_be_asked_none_is() -> None:
    config = pipconfig.read({"PIP_NO_INDEX": "1"}, [])
    assert config.preferring(("https://a.test",)) == config
