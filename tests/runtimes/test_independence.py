"""Which models of each framework keep their rows apart, as the frameworks themselves make these
models.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from runtimes.test_model_formats import PACKAGES
from support import tensorflow_messages
from support.model_environments import environment

HERE = Path(__file__).parent / "models"

pytestmark = [pytest.mark.runtimes, pytest.mark.timeout(1500)]


@pytest.mark.parametrize("framework", ["pytorch", "sklearn", "tensorflow"])
def test_only_rows_that_are_apart_are_proven(framework: str) -> None:
    script = HERE / f"check_independence_{framework}.py"
    made = subprocess.run(
        [environment(*PACKAGES[framework]), script],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    reasons: dict[str, str] = json.loads(made.stdout.splitlines()[-1])
    assert {
        name: reason for name, reason in reasons.items() if name.startswith("apart") and reason
    } == {}
    assert [
        name for name, reason in reasons.items() if name.startswith("mixes") and not reason
    ] == []


PATHS = {
    "Saved": "",
    "MetaGraph": "meta_graphs",
    "MetaInfoDef": "meta_graphs.meta_info_def",
    "GraphDef": "meta_graphs.graph_def",
    "NodeDef": "meta_graphs.graph_def.node",
    "AttrEntry": "meta_graphs.graph_def.node.attr",
    "AttrValue": "meta_graphs.graph_def.node.attr.value",
    "ListValue": "meta_graphs.graph_def.node.attr.value.list",
    "NameAttrList": "meta_graphs.graph_def.node.attr.value.func",
    "FunctionDefLibrary": "meta_graphs.graph_def.library",
    "FunctionDef": "meta_graphs.graph_def.library.function",
    "RetEntry": "meta_graphs.graph_def.library.function.ret",
    "OpDef": "meta_graphs.graph_def.library.function.signature",
    "ArgDef": "meta_graphs.graph_def.library.function.signature.input_arg",
}
"""Where TensorFlow has the messages that our reader is compared with: names of fields from
``SavedModel`` on.
"""


def test_the_messages_that_the_reader_is_compared_with_are_those_of_tensorflow() -> None:
    assert PATHS.keys() == tensorflow_messages.MESSAGES.keys()
    made = subprocess.run(
        [environment(*PACKAGES["tensorflow"]), HERE / "check_messages_tensorflow.py"],
        input=json.dumps(list(PATHS.values())),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    theirs = json.loads(made.stdout.splitlines()[-1])
    for name, path in PATHS.items():
        for number, field, kind, repeated, one_of in tensorflow_messages.fields(name):
            theirs_kind = theirs[path][field][1].rpartition(".")[2]
            same = kind in (theirs_kind, f"{theirs_kind}Entry") or kind in PATHS
            assert (number, repeated, one_of, same) == (
                *(theirs[path][field][place] for place in (0, 2, 3)),
                True,
            ), field
