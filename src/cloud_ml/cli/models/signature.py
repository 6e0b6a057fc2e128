"""``cloudml models signature``: writes the input signature of a model whose file stores none."""

from __future__ import annotations

import json
from pathlib import Path

import click

from cloud_ml.cli.completion.candidates import files
from cloud_ml.cli.display.output import echo, note
from cloud_ml.errors import InvalidRequest

_NEEDS = (".pt", ".py")
_STORES = (
    ".onnx",
    ".keras",
    ".pt2",
    ".tflite",
    ".skops",
    ".joblib",
    ".pkl",
    ".ubj",
    ".pb",
    ".json",
    ".txt",
)


@click.command()
@click.argument("file", shell_complete=files)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME:TYPE[SIZES]",
    help="An input, such as x:float32[?,8].",
)
@click.option(
    "--output", "outputs", multiple=True, metavar="NAME:TYPE[SIZES]",
    help="An output. Without any, the model server finds them out when it loads the model.",
)  # fmt: skip
@click.option(
    "-o",
    "--output-file",
    "target",
    metavar="PATH",
    help="Write to this file. Default: standard output.",
)
def signature(
    file: str, *, inputs: tuple[str, ...], outputs: tuple[str, ...], target: str | None
) -> None:
    """Write the signature of a model whose file stores none, such as TorchScript.

    \b
    cloudml models signature model.pt --input x:float32[?,8] -o signature.json
    cloudml models deploy risk v1 .

    ? is any size. Give --input once for each input, in the order in which the model takes them. The
    name signature.json and the place beside the model are fixed: the model server looks for the
    file there.
    """
    from cloud_ml.sdk.models.signature_files import FILE, signature_document

    model = Path(file)
    if not model.exists():
        raise InvalidRequest(
            f"FILE is {file!r}, which does not exist",
            field="FILE",
            value=file,
            allowed="a model file",
        )
    if model.suffix in _STORES:
        note(
            f"{model.name} stores its own signature; {FILE} beside it is not needed and takes "
            "its place."
        )
    elif model.is_file() and model.suffix not in _NEEDS:
        note(
            f"The model server looks for model.pt or model.py beside {FILE}; {model.name} is "
            "neither."
        )
    text = json.dumps(signature_document(inputs, outputs), indent=2) + "\n"
    if target is None:
        echo(text.rstrip("\n"))
        return
    place = Path(target)
    if place.is_dir():
        place /= FILE
    try:
        place.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(
            f"{place} cannot be written: {error.strerror}",
            field="-o",
            value=str(place),
            allowed="a writable path",
        ) from error
    echo(f"{place} is written")
    folder = model if model.is_dir() else model.parent
    if place.name != FILE or place.resolve().parent != folder.resolve():
        note(f"The model server looks for it as {folder / FILE}.")
    else:
        note(f"Deploy it: cloudml models deploy NAME VERSION {_to_deploy(model, FILE)}")


def _to_deploy(model: Path, signature: str) -> Path:
    """The model, or its folder where code may read other files of it."""
    if model.name != "model.py":
        return model
    beside = {each.name for each in model.parent.iterdir()} - {model.name, signature, "__pycache__"}
    return model.parent if beside else model
