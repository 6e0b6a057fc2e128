"""What a server is told to serve: names, folders, which versions, labels; also from TensorFlow
Serving's files.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.protos import message, pool


@dataclass(frozen=True, slots=True)
class Latest:
    """The newest ones: highest numbers."""

    count: int = 1

    def choose(self, numbers: Collection[int]) -> frozenset[int]:
        """The versions that are wanted of those there are."""
        return frozenset(sorted(numbers, reverse=True)[: self.count])


@dataclass(frozen=True, slots=True)
class AllVersions:
    """All that there are."""

    def choose(self, numbers: Collection[int]) -> frozenset[int]:
        """The versions that are wanted of those there are."""
        return frozenset(numbers)


@dataclass(frozen=True, slots=True)
class Specific:
    """These and no others."""

    numbers: frozenset[int]

    def choose(self, numbers: Collection[int]) -> frozenset[int]:
        """The versions that are wanted of those there are."""
        return self.numbers.intersection(numbers)


VersionPolicy = Latest | AllVersions | Specific


_MOST_VERSIONS = 100
_MOST_DIGITS = 18


def parse_policy(text: str) -> VersionPolicy:
    """``latest``, ``latest:2``, ``all``, or numbers with commas between, such as ``1,2``.

    Raises:
        BadRequest: It is none of these.
    """
    word, colon, count = text.strip().partition(":")
    if word == "all" and not colon:
        return AllVersions()
    if word == "latest":
        number = _number(count) if colon else 1
        if number is not None and 0 < number <= _MOST_VERSIONS:
            return Latest(number)
    numbers = [_number(each.strip()) for each in text.split(",")]
    if not colon and len(numbers) <= _MOST_VERSIONS and all(each is not None for each in numbers):
        return Specific(frozenset(each for each in numbers if each is not None))
    raise BadRequest(
        f"{text[:80]!r} is no version policy: use latest, latest:2, all, or numbers such as 1,2"
    )


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model: where its numbered folders are, which of them are wanted, and names for some."""

    name: str
    base: Path
    policy: VersionPolicy = Latest()
    labels: Mapping[str, int] = field(default_factory=dict)


def parse_config(text: str) -> dict[str, ModelConfig]:
    """The models of a configuration file: ``ModelServerConfig`` as text.

    Raises:
        BadRequest: where it is none, with the line.
    """
    made = message("tensorflow.serving.ModelServerConfig")()
    try:
        text_format.Parse(text, made, descriptor_pool=pool())
    except text_format.ParseError as error:
        raise BadRequest(f"the model configuration cannot be read: {error}") from error
    return from_message(made)


def from_message(config: Any) -> dict[str, ModelConfig]:
    """The models of a ``ModelServerConfig``.

    Raises:
        BadRequest: where a model lacks something, is there twice, or the list is none of models.
    """
    if config.WhichOneof("config") != "model_config_list":
        raise BadRequest(
            "the configuration has no model_config_list; other kinds are not supported"
        )
    return by_name(_model(each) for each in config.model_config_list.config)


def by_name(models: Iterable[ModelConfig]) -> dict[str, ModelConfig]:
    """Models by name.

    Raises:
        BadRequest: where two have the same.
    """
    made: dict[str, ModelConfig] = {}
    for model in models:
        if model.name in made:
            raise BadRequest(f"model {model.name!r} is configured twice")
        made[model.name] = model
    return made


def _model(config: Any) -> ModelConfig:
    if not config.name:
        raise BadRequest(f"a model with base_path {config.base_path!r} has no name")
    if not config.base_path:
        raise BadRequest(f"model {config.name!r} has no base_path")
    path = Path(config.base_path.removeprefix("file://"))
    if not path.is_absolute():
        raise BadRequest(
            f"base_path of model {config.name!r} is {config.base_path!r}; an absolute path is "
            "needed"
        )
    return ModelConfig(config.name, path, _policy(config), dict(config.version_labels))


def _policy(config: Any) -> VersionPolicy:
    policy = config.model_version_policy
    choice = policy.WhichOneof("policy_choice")
    if choice == "all":
        return AllVersions()
    if choice == "specific":
        if not policy.specific.versions:
            raise BadRequest(
                f"model_version_policy of model {config.name!r} is specific and names no versions"
            )
        return Specific(frozenset(policy.specific.versions))
    return Latest(policy.latest.num_versions or 1)
