from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cloud_ml.environments.base import EnvironmentFailed
from cloud_ml.environments.catalog import Catalog
from cloud_ml.environments.runtime import BadRuntime

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.load()


def test_listing(catalog: Catalog) -> None:
    assert catalog.listing() == {
        "jax": ["0.10"],
        "keras": ["3", "3-jax", "3-torch"],
        "lightgbm": ["4.7"],
        "paddlepaddle": ["3.3"],
        "python": [PYTHON],
        "pytorch": ["2.13"],
        "scikit-learn": ["1.9"],
        "tensorflow": ["2.21", "1"],
        "xgboost": ["3.2"],
    }


def test_plain_python_is_offered_for_every_interpreter() -> None:
    catalog = Catalog.load(None, ("3.8", PYTHON, "3.13"))
    assert sorted(catalog.listing()["python"]) == sorted({"3.8", PYTHON, "3.13"})
    assert catalog.find("python").label == f"python {PYTHON}"
    assert catalog.find("python").python is None
    assert catalog.find("python", "3.8").python == "3.8"
    assert catalog.find("python", "3.13.1").python == "3.13"
    assert "3.13" in catalog.find("python", "3.13").summary
    with pytest.raises(EnvironmentFailed, match=r"python 3\.14 is not offered; there is 3\.13, "):
        catalog.find("python", "3.14")


@pytest.mark.parametrize(
    ("framework", "version", "label"),
    [
        ("tensorflow", None, "tensorflow 2.21"),
        ("tensorflow", "", "tensorflow 2.21"),
        ("TensorFlow", "2", "tensorflow 2.21"),
        ("tensorflow", "2.21", "tensorflow 2.21"),
        ("tensorflow", "2.21.0", "tensorflow 2.21"),
        ("keras", None, "keras 3"),
        ("keras", "3-jax", "keras 3-jax"),
        ("torch", None, "pytorch 2.13"),
        ("sklearn", "1", "scikit-learn 1.9"),
        ("paddle", None, "paddlepaddle 3.3"),
        ("tensorflow", "1", "tensorflow 1"),
        ("tensorflow", "1.15", "tensorflow 1"),
        ("tensorflow", "1.0.0", "tensorflow 1"),
        ("python", None, f"python {PYTHON}"),
        ("python", "3", f"python {PYTHON}"),
    ],
)
def test_find(catalog: Catalog, framework: str, version: str | None, label: str) -> None:
    assert catalog.find(framework, version).label == label


def test_unknown_framework_names_what_is_near_and_what_there_is(catalog: Catalog) -> None:
    with pytest.raises(EnvironmentFailed) as caught:
        catalog.find("tensorflwo")
    assert "did you mean tensorflow?" in caught.value.message
    assert "python, pytorch, scikit-learn, tensorflow" in caught.value.message


def test_unknown_version_names_what_there_is(catalog: Catalog) -> None:
    with pytest.raises(
        EnvironmentFailed, match=r"tensorflow 2\.4 is not offered; there is 2\.21, 1"
    ):
        catalog.find("tensorflow", "2.4")


def test_overrides_leave_out_what_the_runtime_itself_requires(catalog: Catalog) -> None:
    compat = catalog.find("tensorflow", "1")
    assert set(compat.overrides) == {
        'tensorflow-gpu; python_version < "0"',
        'tensorflow; python_version < "0"',
    }
    assert compat.base_memory == 1200 * 1024**2


def test_a_file_of_the_operator_adds_and_replaces(tmp_path: Path) -> None:
    (tmp_path / "legacy.toml").write_text(
        'name = "tensorflow"\nversion = "1.15"\npython = "3.7"\nrequires = ["tensorflow==1.15.5"]\n'
    )
    (tmp_path / "tensorflow1.toml").write_text(
        'name = "tensorflow"\nversion = "1.4"\nbase_memory = 5\n'
    )
    catalog = Catalog.load(tmp_path)
    assert catalog.listing()["tensorflow"] == ["2.21", "1.15", "1.4"]
    assert catalog.find("tensorflow", "1.15").python == "3.7"
    assert catalog.find("tensorflow", "1.4").base_memory == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "x"', "version"),
        ('name = "x"\nversion = "1"\ncolour = "red"', "colour"),
        (
            'name = "x"\nversion = "1"\nrequires = "numpy"',
            "requires is 'numpy'; allowed: a list of strings",
        ),
        ('name = "x"\nversion = "1"\nbase_memory = "much"', "base_memory is 'much'"),
        ('name = "x"\nversion = "1"\nbase_memory = true', "base_memory is True"),
        ('name = "x"\nversion = "1"\nlenient = "yes"', "true or false"),
        ('name = "x"\nversion = "1"\n[environment]\nA = 1', "a table of strings"),
        ("name = ", "x.toml"),
        ('name = "X y"\nversion = "1"', "name holds 'X y'; allowed: a string of a-z"),
        (
            'name = "x"\nversion = "1"\npython = "newest"',
            "python holds 'newest'; allowed: a version such as 3.12",
        ),
        ('name = "x"\nversion = "1"\nrank = -1', "rank is -1; allowed: a number from 0 to 1000"),
        (
            'name = "x"\nversion = "1"\nrequires = ["./a"]',
            "requires holds './a'; allowed: a list of strings such as",
        ),
        (
            'name = "x"\nversion = "1"\nindexes = ["ftp://x"]',
            "indexes holds 'ftp://x'; allowed: a list of",
        ),
        ('name = "x"\nversion = "1"\nimports = ["a.b"]', "imports holds 'a.b'"),
        ('name = "x"\nversion = "1"\ncompat = ["none"]', "compat holds 'none'"),
        ('name = "x"\nversion = "1"\nthreads = ["A B"]', "threads holds 'A B'"),
    ],
)
def test_a_wrong_file_says_what_is_allowed(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(BadRuntime) as caught:
        Catalog.load(tmp_path)
    assert message in str(caught.value)


def test_digests_follow_the_content(tmp_path: Path, catalog: Catalog) -> None:
    assert catalog.digest == Catalog.load(tmp_path).digest
    (tmp_path / "x.toml").write_text('name = "x"\nversion = "1"')
    assert catalog.digest != Catalog.load(tmp_path).digest


def test_a_change_of_a_file_is_seen_at_the_next_load(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text('name = "x"\nversion = "1"')
    before = Catalog.load(tmp_path)
    assert Catalog.load(tmp_path) is before
    file.write_text('name = "x"\nversion = "1.1"')
    assert Catalog.load(tmp_path).find("x").version == "1.1"
    file.unlink()
    assert "x" not in Catalog.load(tmp_path).listing()
