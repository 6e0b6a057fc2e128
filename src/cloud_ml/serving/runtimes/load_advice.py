"""Why a model's file cannot be loaded, and the way out, as sentences for its owner."""

import json
import re
import zipfile
from pathlib import Path

from cloud_ml.serving.errors import ModelFailed
from cloud_ml.serving.runtimes.file_content import strange_content, torch_file

_EXPORT = "torch.export.save(torch.export.export(model.eval(), (example,)), 'model.pt2')"
_NO_PROTOBUF = "INVALID_PROTOBUF"
_OWN_CODE = (
    "deploy a folder with this file under another name, such as weights.pkl, and a model.py that "
    "has the code, as docs/reference/serving-models.md shows"
)
_MISSING_CLASS = re.compile(
    r"Can't get attribute '(?P<name>[\w.]{1,200})' on <module '(?P<module>[\w.]{1,200})'"
)
_MOST_METADATA = 65_536


def check_torch_script(file: Path) -> None:
    """Refuse a file of PyTorch that holds no TorchScript program, with the way to a model that can
    be served.

    Raises:
        ModelFailed: It holds weights, or a pickled module, or is no file of PyTorch.
    """
    found, name = torch_file(file), user_name(file)
    if found.kind == "weights":
        raise ModelFailed(
            f"{name} holds only weights (a state_dict), not a model: load them into your model and "
            f"export that with {_EXPORT}"
        )
    if found.kind == "module":
        own = [each for each in found.classes if not each.startswith("torch.")]
        needs = f" that needs its Python classes ({', '.join(own[:3])})" if own else ""
        raise ModelFailed(
            f"{name} is a pickled module{needs}: load it with torch.load(…, weights_only=False) "
            f"and export it with {_EXPORT}"
        )
    if found.kind == "unknown":
        raise ModelFailed(
            f"{name} is not a TorchScript file{_really(file)}: export the model with {_EXPORT}"
        )


def check_estimator(made: object, name: str) -> None:
    """Refuse what a pickle holds if it cannot predict.

    Raises:
        ModelFailed: It holds something else, such as a dictionary with an estimator in it.
    """
    if hasattr(made, "predict") or hasattr(made, "transform"):
        return
    keys = ", ".join(map(str, made))[:200] if isinstance(made, dict) else ""
    raise ModelFailed(
        f"{name} holds no estimator, but a value of type "
        f"{type(made).__name__}{f' with {keys}' if keys else ''}: save "
        f"the estimator alone, or {_OWN_CODE}"
    )


def cannot_load(file: Path, loader: str, error: BaseException | str) -> ModelFailed:
    """A loader's refusal of a file, with what the file is where its bytes tell."""
    words = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    name = user_name(file)
    if what := strange_content(file):
        return ModelFailed(f"{name} is not a valid model: it is {what} ({loader}: {words})"[:2000])
    if _NO_PROTOBUF in words:
        return ModelFailed(
            f"{name} is not a valid ONNX file: export the model again, or upload the whole "
            f"file ({loader}: {words})"[:2000]
        )
    return ModelFailed(f"{name} cannot be loaded ({loader}: {words})"[:2000])


def pickle_refusal(file: Path, error: BaseException) -> ModelFailed:
    """A pickle's refusal, with the way out where its classes are missing."""
    name, words = user_name(file), f"{type(error).__name__}: {error}"
    if found := _MISSING_CLASS.search(str(error)):
        module = found["module"]
        origin = "the script that saved it" if module.endswith("__main__") else f"module {module}"
        return ModelFailed(
            f"{name} needs the class {found['name']} of {origin}, and a pickle does not hold the "
            f"code of its classes: {_OWN_CODE} ({words})"[:2000]
        )
    if isinstance(error, ModuleNotFoundError) and error.name:
        return ModelFailed(
            f"{name} needs the module {error.name}, which this replica does not have: if it is your own code, "
            f"{_OWN_CODE} ({words})"[:2000]
        )
    return ModelFailed(f"{name} cannot be loaded: {words}"[:2000])


def user_name(file: Path) -> str:
    """The name that its owner gave a model's file. A single file is served by a link with
    another name.
    """
    try:
        return file.readlink().name
    except OSError:
        return file.name


def _really(file: Path) -> str:
    what = strange_content(file)
    return f", it is {what}" if what else ""


def keras_refusal(file: Path, installed: str, error: BaseException) -> ModelFailed:
    """Keras's refusal of a file, with the versions of Keras where they differ."""
    words, name = f"{type(error).__name__}: {error}", user_name(file)
    saved_by = keras_version(file)
    if saved_by and saved_by != installed:
        return ModelFailed(
            f"{name} was saved by Keras {saved_by} and this replica runs Keras {installed}: save "
            f"it with Keras {installed}, or export it with model.export('saved') and deploy the "
            f"folder saved ({words})"[:2000]
        )
    if not saved_by:
        return cannot_load(file, "Keras", error)
    return ModelFailed(f"Keras cannot load it: {words}"[:2000])


def keras_version(file: Path) -> str:
    """The version of Keras that saved a ``.keras`` file; empty where the file does not say so."""
    try:
        with zipfile.ZipFile(file) as archive, archive.open("metadata.json") as content:
            # With a bound: an archive of a few kilobytes may unpack to gigabytes.
            document = json.loads(content.read(_MOST_METADATA))
        version = document["keras_version"]
    except (
        OSError,
        zipfile.BadZipFile,
        ValueError,
        LookupError,
        TypeError,
        RuntimeError,
        RecursionError,
    ):
        return ""
    except NotImplementedError:  # a compression that this Python does not know
        return ""
    return version[:40] if isinstance(version, str) and version.isprintable() else ""
