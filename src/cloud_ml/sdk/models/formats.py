"""Files that people take for a model that can be served: what each is, and how to export one."""

from __future__ import annotations

from pathlib import PurePath

_TORCH_EXPORT = "torch.export.save(torch.export.export(model.eval(), (example,)), 'model.pt2')"
_WEIGHTS = f"it holds only weights: load them into your model and export that with {_TORCH_EXPORT}"
_HDF5 = (
    "it is Keras's older HDF5 format: load it with keras.models.load_model and save it with {save}"
)
_KERAS_SAVE = "model.save('model.keras')"
_ADVICE = (
    (
        ".weights.h5",
        "it holds only weights: load them with model.load_weights and save the model with "
        f"{_KERAS_SAVE}",
    ),
    (".h5", _HDF5.format(save=_KERAS_SAVE)),
    (".hdf5", _HDF5.format(save=_KERAS_SAVE)),
    (".safetensors", _WEIGHTS),
    (".bin", _WEIGHTS),
    (".ckpt", _WEIGHTS),
    (
        "saved_model.pb",
        "deploy the folder that holds it: the weights of the model are beside this file",
    ),
    (
        ".pb",
        "it is a graph without its weights or signature: export a SavedModel and deploy its folder",
    ),
    (".npz", "it holds arrays and no model: deploy a folder with model.py, which loads them"),
    (".npy", "it holds an array and no model: deploy a folder with model.py, which loads it"),
)
"""How a name ends, and the way to a model that can be served; the first that fits counts."""


def export_advice(path: PurePath) -> str:
    """What a file of this name is and what to do; empty where its name does not say."""
    name = path.name.lower()
    return next((advice for ending, advice in _ADVICE if name.endswith(ending)), "")
