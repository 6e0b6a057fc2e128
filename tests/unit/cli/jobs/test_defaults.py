"""The name and the module of a job, taken from its code."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from cloud_ml.cli.jobs.defaults import (
    check_module_in,
    looks_like_code,
    module_for,
    module_of_script,
    name_for,
)
from cloud_ml.cli.jobs.submit_arguments import with_defaults
from cloud_ml.errors import InvalidRequest
from cloud_ml.models import common


def _made(folder: Path, files: str) -> str:
    for name in files.split():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return str(folder)


@pytest.mark.parametrize(
    ("files", "module"),
    [
        ("train.py", "train"),
        ("anything.py setup.py conftest.py test_it.py requirements.txt", "anything"),
        ("main.py model.py data.py", "main"),
        ("setup.py trainer/__init__.py trainer/task.py trainer/model.py", "trainer.task"),
        ("trainer/__init__.py trainer/task.py helper.py", "trainer.task"),
        (
            "pyproject.toml src/linear/__init__.py src/linear/__main__.py tests/__init__.py",
            "linear",
        ),
        (
            "pyproject.toml src/linear/__init__.py src/linear/train.py src/linear/model.py",
            "linear.train",
        ),
        ("linear/__init__.py linear/__main__.py", "linear"),
        ("my-notes.py run.py", "run"),
        ("train-model.py requirements.txt", "train-model"),
        ("01_train.py setup.py", "01_train"),
    ],
)
def test_a_folder_that_leaves_no_doubt(tmp_path: Path, files: str, module: str) -> None:
    assert module_for(_made(tmp_path, files)) == module


@pytest.mark.parametrize("form", ["zip", "gztar", "tar"])
@pytest.mark.parametrize("top", ["", "churn"])
def test_an_archive_is_looked_into_like_its_folder(tmp_path: Path, form: str, top: str) -> None:
    _made(tmp_path / "code" / top, "train.py utils.py requirements.txt data/x.csv tests/test_a.py")
    archive = shutil.make_archive(str(tmp_path / "churn-1.0"), form, tmp_path / "code")
    assert module_for(archive) == "train"


def test_a_wheel_is_looked_into(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "mnist-1.0-py3-none-any.whl", "w") as wheel:
        for name in ("trainer/__init__.py", "trainer/task.py", "mnist-1.0.dist-info/METADATA"):
            wheel.writestr(name, "")
    assert module_for(str(tmp_path / "mnist-1.0-py3-none-any.whl")) == "trainer.task"


def test_an_archive_with_several_modules_names_them(tmp_path: Path) -> None:
    _made(tmp_path / "code", "fit.py score.py")
    archive = shutil.make_archive(str(tmp_path / "churn"), "zip", tmp_path / "code")
    with pytest.raises(InvalidRequest, match=r"churn\.zip holds several modules .*: fit, score"):
        module_for(archive)


def test_looking_into_an_archive_writes_nothing_outside(tmp_path: Path) -> None:
    evil = tmp_path / "evil.zip"
    with zipfile.ZipFile(evil, "w") as archive:
        for name in ("../train.py", f"{tmp_path}/train.py", "a/../../main.py"):
            archive.writestr(name, "")
    with pytest.raises(InvalidRequest, match=r"which module of evil\.zip"):
        module_for(str(evil))
    assert [path.name for path in tmp_path.iterdir()] == ["evil.zip"]


@pytest.mark.parametrize("root", [".", "src"])
def test_the_module_of_a_projects_command_is_run(tmp_path: Path, root: str) -> None:
    package = tmp_path / root / "churn"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "cli.py").write_text("def main(): ...\nif __name__ == '__main__':\n    main()\n")
    (package / "tools.py").write_text("def report(): ...\n")
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "churn"\n[project.scripts]\n'
        'churn-train = "churn.cli:main"\nchurn-report = "churn.tools:report"\n'
    )
    assert module_for(str(tmp_path)) == "churn.cli"


def test_a_command_whose_module_runs_nothing_is_named_with_the_way_to_run_it(
    tmp_path: Path,
) -> None:
    _made(tmp_path, "src/churn/__init__.py src/churn/cli.py src/churn/tools.py")
    (tmp_path / "pyproject.toml").write_text('[project.scripts]\nchurn-fit = "churn.cli:main"\n')
    with pytest.raises(InvalidRequest, match="no module to run was found") as caught:
        module_for(str(tmp_path))
    assert caught.value.hint == (
        "The command churn-fit of pyproject.toml calls main() of churn.cli. Call it in "
        "src/churn/cli.py under if __name__ == '__main__': and give -m churn.cli."
    )


def test_an_empty_folder_is_answered_with_what_a_trainer_needs(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=f"the folder {tmp_path} is empty") as caught:
        module_for(str(tmp_path))
    assert "train.py or trainer/task.py" in (caught.value.hint or "")
    (tmp_path / "data.csv").touch()
    with pytest.raises(InvalidRequest, match="no module to run was found") as caught:
        module_for(str(tmp_path))
    assert "train.py or trainer/task.py" in (caught.value.hint or "")


@pytest.mark.parametrize("folder", ["/", "/usr", "~", "~/.."])
def test_the_home_folder_and_those_above_are_no_code(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "users" / "mei"
    home.mkdir(parents=True)
    (home / "train.py").touch()
    monkeypatch.setenv("HOME", str(home))
    with pytest.raises(InvalidRequest, match="which is more than a trainer's code") as caught:
        module_for(folder)
    assert caught.value.field == "trainer_uri"


def test_a_home_folder_with_ignore_rules_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", _made(tmp_path, "train.py .cloudmlignore"))
    assert module_for(str(tmp_path)) == "train"


def test_the_name_of_a_command_is_answered_with_its_module(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project.scripts]\nchurn-train = "churn.cli:main"\n')
    with pytest.raises(InvalidRequest) as caught:
        check_module_in(str(tmp_path), "churn-train")
    assert caught.value.hint == "Did you mean churn.cli?"


def test_a_project_file_from_windows_is_read(tmp_path: Path) -> None:
    (tmp_path / "churn").mkdir()
    (tmp_path / "churn" / "cli.py").write_text("if __name__ == '__main__': ...")
    text = '[project.scripts]\r\ntrain = "churn.cli:main"\r\n'
    (tmp_path / "pyproject.toml").write_bytes(text.encode("utf-8-sig"))
    assert module_for(str(tmp_path)) == "churn.cli"


@pytest.mark.parametrize("text", ["[project", "project = 1", '[project]\nscripts = ["x"]', ""])
def test_a_project_without_commands_leaves_doubt(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(InvalidRequest, match="no module to run"):
        module_for(str(tmp_path))


def test_a_package_itself_and_a_script(tmp_path: Path) -> None:
    assert module_for(_made(tmp_path / "linear", "__init__.py __main__.py")) == "linear"
    assert module_for(_made(tmp_path / "trainer", "__init__.py task.py")) == "trainer.task"
    (tmp_path / "train.py").touch()
    assert module_for(str(tmp_path / "train.py")) == "train"


def test_a_script_whose_name_no_module_can_have_is_to_be_renamed(tmp_path: Path) -> None:
    for name, instead in (
        ("my model.py", "my_model.py"),
        ("größe.py", "groe.py"),
        ("net.v2.py", "net_v2.py"),
    ):
        (tmp_path / name).touch()
        with pytest.raises(InvalidRequest, match="cannot be run as a module") as caught:
            module_for(str(tmp_path / name))
        assert instead in (caught.value.hint or "")


@pytest.mark.parametrize("name", ["train-model.py", "01-train.py", "2.py", "my_model.py"])
def test_a_script_that_python_m_runs_may_be_called_so(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    module = module_for(str(tmp_path / name))
    assert module == name.removesuffix(".py")
    assert module_of_script(str(tmp_path), name) == module
    assert common.check_module("module_name", module) == module


def test_the_folder_above_the_code_names_one_that_has_scripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ddp").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "a.py").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequest) as caught:
        module_for(".")
    assert caught.value.hint == "Say which: -m trainer.task."
    (tmp_path / "ddp" / "train.py").touch()
    with pytest.raises(InvalidRequest) as caught:
        module_for(".")
    assert (caught.value.hint or "").endswith("Or submit the folder of the code, such as ./ddp")


def test_code_that_is_not_there_is_told_before_its_module_is_looked_for() -> None:
    with pytest.raises(
        InvalidRequest, match=r"trainer_uri is '\./absent'; allowed is .* that exists"
    ):
        module_for("./absent")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ("a.py b.py", "several modules that could be run: a, b"),
        ("main.py train.py", "main, train"),
        ("README.md", "no module to run was found"),
        ("model/__init__.py model/layers.py", "no module to run was found"),
    ],
)
def test_a_folder_that_leaves_doubt_is_refused_with_what_was_found(
    tmp_path: Path, files: str, words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        module_for(_made(tmp_path, files))
    assert caught.value.field == "module_name"
    assert "-m " in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("name", "content"), [("run.sh", "python train.py\n"), ("run", "#!/usr/bin/env bash\n")]
)
def test_a_shell_script_is_answered_with_what_to_do(
    name: str, content: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InvalidRequest, match=f"{name} is a shell script") as caught:
        module_for(str(tmp_path / name))
    assert "--prepare_command" in (caught.value.hint or "")


@pytest.mark.parametrize("uri", ["fds://cloudml/a.tar.gz", "a-1.0.tar.gz"])
def test_what_cannot_be_looked_into_needs_a_module(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-1.0.tar.gz").touch()
    with pytest.raises(InvalidRequest, match="which module"):
        module_for(uri)


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("fds://cloudml/mine/linear-1.0.tar.gz", "linear"),
        ("fds://cloudml/linear_model-2.1.0.post1-py3-none-any.whl", "linear-model"),
        ("/x/My Übung (2)", "my-ubung-2"),
        ("/x/train.py", "train"),
        ("/x/" + "a" * 80, "a" * 50),
        ("/x/v1.2", "v1-2"),
    ],
)
def test_names(uri: str, name: str) -> None:
    assert name_for(uri) == name


def test_a_name_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="日本"):
        name_for("/x/日本")


def test_code_is_told_from_names() -> None:
    assert all(
        map(looks_like_code, [".", "./x", "a/b", "fds://b/k", "train.py", "x.tar.gz", "~me"])
    )
    assert not any(map(looks_like_code, ["linear", "trainer.task", "a-b"]))


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("train.py", "Did you mean train?"),
        ("trainer.tsk", "Did you mean trainer.task?"),
        ("trainer.xyz", ""),
        ("trainer-task", "Did you mean trainer.task?"),
        ("trainer-xyz", ""),
    ],
)
def test_a_module_that_the_folder_cannot_hold_is_refused(
    tmp_path: Path, module: str, words: str
) -> None:
    folder = _made(tmp_path, "train.py trainer/__init__.py trainer/task.py")
    with pytest.raises(InvalidRequest, match="module_name is") as caught:
        check_module_in(folder, module)
    assert (caught.value.hint or "") == words


def test_a_package_without_the_module_names_those_that_it_has(tmp_path: Path) -> None:
    folder = _made(tmp_path, "trainer/__init__.py trainer/task.py trainer/data.py")
    with pytest.raises(InvalidRequest, match=r"such as trainer\.data, trainer\.task$"):
        check_module_in(folder, "trainer.nope")
    with pytest.raises(InvalidRequest, match="allowed is a module that"):
        check_module_in(folder, "trainer.nope.task")


@pytest.mark.parametrize(
    ("typed", "module"),
    [
        ("train.py", "train"),
        ("./train.py", "train"),
        ("train", "train"),
        ("other.py", "other.py"),
        ("trainer/task.py", "trainer/task.py"),
    ],
)
def test_a_script_of_the_folder_is_a_module(tmp_path: Path, typed: str, module: str) -> None:
    folder = _made(tmp_path, "train.py trainer/__init__.py trainer/task.py")
    assert module_of_script(folder, typed) == module


def test_submit_takes_a_script_where_it_wants_a_module(tmp_path: Path) -> None:
    """``cloudml jobs submit churn train.py .``"""
    fields = with_defaults(
        {"job_name": "a", "module_name": "train.py", "trainer_uri": _made(tmp_path, "train.py")}
    )
    assert fields["module_name"] == "train"


def test_modules_that_may_come_from_elsewhere_are_let_pass(tmp_path: Path) -> None:
    folder = _made(
        tmp_path / "plain", "train.py trainer/__init__.py trainer/task.py trainer/data/x.py"
    )
    for module in ("train", "trainer.task", "trainer.data", "torch.distributed.run"):
        check_module_in(folder, module)
    check_module_in(
        _made(tmp_path / "built", "setup.py trainer/__init__.py"), "trainer.made_by_the_build"
    )
    check_module_in("fds://cloudml/a.whl", "anything.py")
