"""A pickle's classes name the packages that a replica installs."""

from __future__ import annotations

import bz2
import gzip
import os
import pickle
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_ml.controller.programs.model_requirements import ModelRequirements, requirements_of
from cloud_ml.controller.programs.model_server import ModelServerPackage
from cloud_ml.controller.programs.pickled_modules import MOST_BYTES, pickled_modules
from cloud_ml.models.common import parse_object_uri
from cloud_ml.objects.memory import MemoryObjectStore
from support.measuring import growth

NAMES = frozenset({"imblearn", "lightgbm", "xgboost"})
GLOBAL = {
    4: b"\x80\x04\x95\x20\0\0\0\0\0\0\0\x8c%c%b\x94\x8c\x05Model\x94\x93\x94)\x81\x94.",
    2: b"\x80\x02%.0cc%b\nModel\nq\0)\x81q\x01.",
}
COMPRESSIONS = {"plain": bytes, "zlib": zlib.compress, "gzip": gzip.compress}


def pickled(module: str, protocol: int = 4) -> bytes:
    return GLOBAL[protocol] % (len(module), module.encode())


def required(key: str, content: bytes, framework: str | None = None) -> ModelRequirements | None:
    objects = MemoryObjectStore()
    objects.create_bucket("cloudml")
    objects.put("cloudml", key, content)
    uri = f"fds://cloudml/{key}" if "churn" in key else "fds://cloudml/m"
    return requirements_of(objects, parse_object_uri("model_uri", uri), framework)


@pytest.mark.parametrize("protocol", GLOBAL)
@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("xgboost.sklearn", ModelRequirements("xgboost")),
        ("lightgbm.sklearn", ModelRequirements("lightgbm")),
        ("lightgbm", ModelRequirements("lightgbm")),
        ("imblearn.pipeline", ModelRequirements("scikit-learn", ("imbalanced-learn",))),
        ("sklearn.pipeline", ModelRequirements("scikit-learn")),
        ("my_xgboost.sklearn", ModelRequirements("scikit-learn")),
        ("xgboosted.sklearn", ModelRequirements("scikit-learn")),
    ],
)
@pytest.mark.parametrize("key", ["m/1/model.pkl", "m/model.joblib", "m/churn.joblib"])
def test_a_pickle_names_the_packages_of_its_classes(
    protocol: int, compression: str, module: str, expected: ModelRequirements, key: str
) -> None:
    content = bytes(300) + pickled(module, protocol) + bytes(300)
    assert required(key, COMPRESSIONS[compression](content)) == expected


def test_a_framework_that_the_service_names_stays_and_gets_the_packages() -> None:
    content = pickled("xgboost.sklearn") + pickled("imblearn.pipeline")
    both = ("imbalanced-learn", "xgboost-cpu")
    assert required("m/model.pkl", content) == ModelRequirements("xgboost", both[:1])
    assert required("m/model.pkl", content, "xgboost") == ModelRequirements("xgboost", both[:1])
    assert required("m/model.pkl", content, "scikit-learn") == ModelRequirements(
        "scikit-learn", both
    )
    assert required("m/model.onnx", content, "pytorch") == ModelRequirements("pytorch")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_what_python_writes_is_understood(protocol: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = type("Model", (), {"__module__": "xgboost.sklearn"})
    monkeypatch.setitem(__import__("sys").modules, "xgboost", type("module", (), {}))
    monkeypatch.setitem(__import__("sys").modules, "xgboost.sklearn", made)
    made.Model = made  # type: ignore[attr-defined]  # where pickle looks for the class
    written = pickle.dumps({"model": made(), "city": ["xgboost"]}, protocol)
    assert pickled_modules([written], NAMES) == {"xgboost"}


def test_texts_are_no_classes() -> None:
    texts = pickle.dumps(["xgboost", {"lightgbm": "xgboost.sklearn"}, b"cxgboost.x"])
    assert pickled_modules([texts], NAMES) == frozenset()


def test_a_module_is_found_where_two_chunks_meet() -> None:
    content = pickled("xgboost.sklearn")
    for place in range(len(content)):
        assert pickled_modules([content[:place], content[place:]], NAMES) == {"xgboost"}


@pytest.mark.parametrize("compress", [zlib.compress, gzip.compress])
def test_a_broken_compression_ends_the_search(compress: Callable[[bytes], bytes]) -> None:
    packed = compress(pickled("xgboost.sklearn") + os.urandom(100_000))
    assert pickled_modules([packed[:50_000], b"junk" * 10_000], NAMES) == {"xgboost"}
    assert pickled_modules([packed[:20]], NAMES) == frozenset()


def test_a_compression_whose_files_choose_their_memory_is_not_opened() -> None:
    assert pickled_modules([bz2.compress(pickled("xgboost"))], NAMES) == frozenset()


def test_a_bomb_is_searched_up_to_a_bound() -> None:
    bomb = zlib.compress(bytes(4 * MOST_BYTES) + pickled("xgboost"))
    tracemalloc.start()
    try:
        assert pickled_modules([bomb], NAMES) == frozenset()
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("line", [b"cxgboost", b"cxgboost.", b"\x8c\x09xgboost\x94", b"c"])
def test_made_up_bytes_cost_time_in_proportion(line: bytes) -> None:
    def search(size: int) -> Callable[[], object]:
        content = line * size
        return lambda: pickled_modules([content], NAMES)

    _, power = growth(search, 50_000)
    assert power < 1.5


def test_the_packages_of_a_pickle_are_requirements_of_the_wheel(tmp_path: Path) -> None:
    package = ModelServerPackage(tmp_path)
    needs = ModelRequirements("scikit-learn", ("imbalanced-learn",))
    source = package.source(needs)
    with zipfile.ZipFile(tmp_path / source.digest / source.name) as wheel:
        (name,) = (each for each in wheel.namelist() if each.endswith("METADATA"))
        assert b"Requires-Dist: imbalanced-learn\n" in wheel.read(name)
    assert package.source(ModelRequirements("scikit-learn")).digest != source.digest
