"""What cannot be had here, said in one sentence that helps."""


def sentence(part):
    """Why ``part`` is not there, and what to do."""
    return (
        f"{part} is not part of the compatibility mode for TensorFlow 1. Run this trainer in a legacy runtime: a real "
        "TensorFlow 1.15, from an image (docker_image) or from a runtime that the operator offers"
    )


class Absent:
    """The last finder: a module below one of ``packages`` that nobody has found is not there, and why."""

    def __init__(self, *packages):
        self._packages = packages

    def find_spec(self, name, path=None, target=None):
        if name in self._packages or name.startswith(tuple(package + "." for package in self._packages)):
            raise ImportError(sentence(name), name=name)
