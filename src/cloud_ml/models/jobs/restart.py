"""When a job starts again, as it travels over HTTP."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloud_ml.errors import InvalidRequest
from cloud_ml.models import common
from cloud_ml.models.jobs.metric_patterns import LONGEST_PATTERN

POLICIES = ("Never", "OnFailure", "ExitCode", "Always")
ACTIONS = ("restart-task", "restart-gang", "fail", "free")
_RETRY = "retry"
"""Another word for ``restart-gang``, which jobs of one task have more use for."""
_WORDS = ", ".join((*ACTIONS, _RETRY))
_MOST_RULES, _LONGEST_TEXT = 32, 200
_LONGEST_HEALTHY_S = 30 * 86400
_FACTOR = re.compile(r"[0-9]{1,2}(\.[0-9]{1,4})?", re.ASCII)
_LARGEST_FACTOR = 16


@dataclass(kw_only=True)
class RestartRule:
    """What follows when a task exits with one of ``exit_codes`` in one of ``roles``, and the end of
    its output has the text ``log``, and a match of the RE2 pattern ``log_pattern``.

    Left out, each means any. A task that a signal ended has the exit code 128 + n. The last 64 KiB of
    output are looked at.
    """

    action: str = ""
    exit_codes: list[int] | None = None
    roles: list[str] | None = None
    log: str | None = None
    log_pattern: str | None = None

    def validate(self, path: str) -> None:
        """Check every field and bring the action into its canonical form; errors are prefixed with
        ``path``.
        """
        if self.action == _RETRY:
            self.action = "restart-gang"
        if self.action not in ACTIONS:
            raise common.refuse(f"{path}.action", self.action, "one of " + _WORDS)
        for field in ("exit_codes", "roles"):
            if getattr(self, field) is not None and not isinstance(getattr(self, field), list):
                raise common.refuse(f"{path}.{field}", getattr(self, field), "a list")
        for number, code in enumerate(self.exit_codes or ()):
            common.check_count(f"{path}.exit_codes[{number}]", code, least=1, most=255)
        for number, role in enumerate(self.roles or ()):
            common.check_name(f"{path}.roles[{number}]", role)
        if self.log is not None and not _is_line(self.log):
            allowed = f"a text of 1 to {_LONGEST_TEXT} characters in one line"
            raise common.refuse(f"{path}.log", self.log, allowed)
        if self.log_pattern is not None and not _is_line(self.log_pattern, LONGEST_PATTERN):
            allowed = f"an RE2 pattern of 1 to {LONGEST_PATTERN} characters in one line"
            raise common.refuse(f"{path}.log_pattern", self.log_pattern, allowed)


@dataclass(kw_only=True)
class Restart:
    """The policy of restarts, and rules that go before it.

    Args:
        policy: ``Never``, ``OnFailure``, ``ExitCode`` (only after exits that another attempt may
            avoid) or ``Always`` (also after a good end). A job of several tasks has ``OnFailure``
            by default, one of a single task ``Never`` unless it has retries.
        rules: Tried in their order; the first that fits counts.
        healthy_s: After an attempt of so many seconds with a new checkpoint or step, all retries are
            there again; 3,600 by default. So are the restarts of a task after that time. With
            ``Always``, a good end after any time gives all of them back.
        memory_factor: After ``OOMKilled``, start again with so many times the memory, such as 1.5;
            also under ``Never``. By default, such an end is the last one.
        memory_most: The most memory that a task gets so, such as ``"4G"``.
    """

    policy: str | None = None
    rules: list[RestartRule] | None = None
    healthy_s: int | None = None
    memory_factor: float | str | None = None
    memory_most: str | None = None

    def validate(self, path: str) -> None:
        """Check every field and bring values into their canonical form."""
        if self.policy is not None:
            self.policy = _policy(f"{path}.policy", self.policy)
        if self.rules is not None:
            if not isinstance(self.rules, list) or len(self.rules) > _MOST_RULES:
                raise common.refuse(
                    f"{path}.rules", self.rules, f"a list of at most {_MOST_RULES} rules"
                )
            self.rules = [
                _object(RestartRule, f"{path}.rules[{number}]", rule)
                for number, rule in enumerate(self.rules)
            ]
        if self.healthy_s is not None:
            self.healthy_s = common.check_count(
                f"{path}.healthy_s", self.healthy_s, most=_LONGEST_HEALTHY_S
            )
        if self.memory_factor is not None:
            self.memory_factor = _factor(f"{path}.memory_factor", self.memory_factor)
        if self.memory_most is not None:
            common.check_memory(f"{path}.memory_most", self.memory_most)
            if self.memory_factor is None:
                raise InvalidRequest(
                    f"{path}.memory_most is {self.memory_most}, and {path}.memory_factor is not set",
                    field=f"{path}.memory_factor",
                    allowed=_FACTOR_ALLOWED,
                )


def _is_line(text: Any, longest: int = _LONGEST_TEXT) -> bool:
    return isinstance(text, str) and 0 < len(text) <= longest and text.isprintable()


def restart(path: str, value: Any) -> Restart:
    """A policy as it was given: ready, or as a plain dictionary.

    Raises:
        InvalidRequest: A field is wrong or not known.
    """
    found: Restart = _object(Restart, path, value)
    return found


def _policy(field: str, value: Any) -> str:
    """One of ``POLICIES``, also as ``on-failure``."""
    if isinstance(value, str):
        plain = value.replace("-", "").replace("_", "").lower()
        for policy in POLICIES:
            if policy.lower() == plain:
                return policy
    raise common.refuse(field, value, "one of " + ", ".join(POLICIES))


_FACTOR_ALLOWED = f"a number above 1, at most {_LARGEST_FACTOR}, such as 1.5"


def _factor(field: str, value: Any) -> float:
    """A factor above 1. Digits as text are accepted."""
    number = value
    if isinstance(value, str) and _FACTOR.fullmatch(value):
        number = float(value)
    plain = isinstance(number, (int, float)) and not isinstance(number, bool)
    if not plain or not 1 < number <= _LARGEST_FACTOR:
        raise common.refuse(field, value, _FACTOR_ALLOWED)
    return float(number)


def _object(kind: type[Any], path: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        known = kind.__dataclass_fields__
        if unknown := next((name for name in value if name not in known), None):
            raise InvalidRequest(
                f"{path}.{unknown} is not a known field",
                field=f"{path}.{unknown}",
                value=value[unknown],
                allowed="one of " + ", ".join(known),
            )
        value = kind(**value)
    if not isinstance(value, kind):
        example = '{"policy": "OnFailure"}' if kind is Restart else '{"action": "fail"}'
        raise common.refuse(path, value, f"an object such as {example}")
    value.validate(path)
    return value
