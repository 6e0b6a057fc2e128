from __future__ import annotations

from pathlib import Path

import pytest

from cloud_ml.environments.base import EnvironmentFailed
from cloud_ml.environments.trainers import modules


@pytest.fixture
def site(tmp_path: Path) -> Path:
    site = tmp_path / "site"
    for name in (
        "trainer/__init__.py",
        "trainer/task.py",
        "runs/__init__.py",
        "runs/__main__.py",
        "plain/deep.py",
    ):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).touch()
    (site / "compiled.cpython-311-x86_64-linux-gnu.so").touch()
    return site


@pytest.mark.parametrize(
    "module", [None, "trainer.task", "runs", "plain.deep", "compiled", "json.tool", "pip"]
)
def test_what_may_be_there_passes(site: Path, tmp_path: Path, module: str | None) -> None:
    layer = tmp_path / "layer"
    (layer / "pip").mkdir(parents=True)
    modules.check(module, [], [site], [layer])


@pytest.mark.parametrize("module", ["trainer.tsk", "tainer.task", "trainer.task.main", "task"])
def test_what_is_nowhere_is_refused_and_the_nearest_is_named(site: Path, module: str) -> None:
    with pytest.raises(EnvironmentFailed) as caught:
        modules.check(module, [], [site], [])
    assert caught.value.reason == "TrainerInvalid"
    assert caught.value.message == (
        f"the trainer has no module {module}, which module_name (-m) asks for; "
        "it has plain.deep, runs, trainer.task; did you mean trainer.task?"
    )


def test_nothing_is_proposed_for_a_name_like_no_other(site: Path) -> None:
    with pytest.raises(EnvironmentFailed, match=r"it has plain\.deep, runs, trainer\.task$"):
        modules.check("xyz", [], [site], [])


def test_a_package_below_src_is_named_once(site: Path, tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    (sent / "src" / "plain").mkdir(parents=True)
    (sent / "src" / "plain" / "deep.py").touch()
    with pytest.raises(EnvironmentFailed, match=r"it has plain\.deep, runs, trainer\.task; did"):
        modules.check("plain.deeep", [sent], [site], [])


def test_scripts_with_dashes_are_named(tmp_path: Path) -> None:
    (tmp_path / "train-model.py").touch()
    with pytest.raises(EnvironmentFailed) as caught:
        modules.check("train_model", [tmp_path], [], [])
    assert caught.value.message == (
        "the trainer has no module train_model, which module_name (-m) asks for; it has train-model"
    )
    modules.check("train-model", [tmp_path], [], [])


def test_a_command_is_no_module_and_its_module_is_named(site: Path) -> None:
    (site / "plain-1.dist-info").mkdir()
    (site / "plain-1.dist-info/entry_points.txt").write_text(
        "[console_scripts]\nplain-train = plain.deep:main\n"
    )
    with pytest.raises(EnvironmentFailed) as caught:
        modules.check("plain-train", [], [site], [])
    assert caught.value.message == (
        "the trainer has no module plain-train, which module_name (-m) asks for; "
        "plain-train is a command, which calls main() of the module plain.deep: name that module, "
        "and have it call the function under if __name__ == '__main__'"
    )


def test_a_module_that_pythons_own_would_hide(site: Path) -> None:
    (site / "types.py").touch()
    with pytest.raises(EnvironmentFailed, match=r"Python has a module types of its own.*rename"):
        modules.check("types", [], [site], [])


@pytest.mark.parametrize("module", ["test", "queue", "platform", "json.tool"])
def test_a_module_in_the_working_directory_comes_before_pythons_own(
    tmp_path: Path, module: str
) -> None:
    (tmp_path / "test.py").touch()
    (tmp_path / "queue.py").touch()
    modules.check(module, [tmp_path], [], [])


def test_a_module_that_python_has_loaded_before_the_working_directory_is_looked_at(
    tmp_path: Path,
) -> None:
    (tmp_path / "types.py").touch()
    with pytest.raises(EnvironmentFailed, match=r"Python has a module types of its own"):
        modules.check("types", [tmp_path], [], [])


def test_a_package_that_cannot_be_run(site: Path) -> None:
    with pytest.raises(
        EnvironmentFailed,
        match=r"trainer is a package without a __main__\.py.*it has .*trainer\.task",
    ):
        modules.check("trainer", [], [site], [])


def test_an_import_hook_could_make_anything(site: Path) -> None:
    (site / "hook.pth").write_text("import hook")
    modules.check("made.up", [], [site], [])


@pytest.mark.parametrize("module", ["link.secret", "link", "file", "link.package"])
def test_a_link_of_a_tenant_does_not_tell_what_lies_outside(
    site: Path, tmp_path: Path, module: str
) -> None:
    """The supervisor of a server with root looks; a build may leave any link."""
    (tmp_path / "outside" / "package").mkdir(parents=True)
    (tmp_path / "outside" / "package" / "__init__.py").touch()
    (tmp_path / "outside" / "secret.py").touch()
    (site / "link").symlink_to(tmp_path / "outside")
    (site / "file").symlink_to(tmp_path / "outside" / "package")
    with pytest.raises(EnvironmentFailed, match="the trainer has no module"):
        modules.check(module, [site], [], [])


def test_a_link_inside_of_the_code_is_followed(site: Path) -> None:
    (site / "alias").symlink_to("trainer")
    modules.check("alias.task", [site], [], [])
