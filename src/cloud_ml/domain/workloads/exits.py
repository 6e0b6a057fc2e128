"""What the exit of a process asks for: that its task starts again, all tasks, or none. Pure.

The user's own rules come first, then the policy of the workload.
"""

from __future__ import annotations

import signal
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from cloud_ml.domain.workloads.reasons import Reason


class RestartPolicy(StrEnum):
    """When a workload starts again, as in Kubernetes.

    ``EXIT_CODE``: only after an exit that another attempt may avoid (see ``is_permanent``).
    ``ALWAYS``: also after a good end.
    """

    NEVER = "Never"
    ON_FAILURE = "OnFailure"
    EXIT_CODE = "ExitCode"
    ALWAYS = "Always"


class ExitAction(StrEnum):
    """What follows from an exit. ``FREE`` starts all tasks again and costs no retry."""

    RESTART_TASK = "restart-task"
    RESTART_GANG = "restart-gang"
    FAIL = "fail"
    FREE = "free"


EXITS = frozenset({Reason.NON_ZERO_EXIT, Reason.SIGNALED, Reason.HUNG, Reason.OUT_OF_MEMORY})
"""Ends with an exit code. Others, such as a limit of time, have reasons of their own."""
_MOST_PLAIN_CODE = 128
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)


def code_of(reason: Reason | None, exit_code: int | None, signal_name: str | None) -> int | None:
    """The exit code as a shell says it: 128 + n for signal n. What hung was ended by SIGABRT,
    whatever became of that.
    """
    if reason is Reason.HUNG:
        return _MOST_PLAIN_CODE + signal.SIGABRT
    if signal_name is None:
        return exit_code
    try:
        return _MOST_PLAIN_CODE + signal.Signals[signal_name]
    except KeyError:
        return exit_code


def is_permanent(code: int | None) -> bool:
    """Whether the program itself is at fault: codes 1 to 128, and crashes of compiled code.

    All other signals come from outside.
    """
    return code is not None and (
        code <= _MOST_PLAIN_CODE or code in [_MOST_PLAIN_CODE + one for one in _CRASHES]
    )


def find_texts(texts: Collection[str], output: bytes) -> tuple[str, ...]:
    """Those of the texts that the end of an output has."""
    return tuple(text for text in texts if text.encode() in output)


@dataclass(frozen=True)
class ExitRule:
    """``action`` after one of these exit codes in one of these roles, with the text ``log`` and a match
    of ``log_pattern`` at the end of the output; empty means any.
    """

    action: ExitAction
    exit_codes: tuple[int, ...] = ()
    roles: tuple[str, ...] = ()
    log: str = ""
    log_pattern: str = ""

    def fits(
        self, role: str, code: int, found: Collection[str], matched: Collection[str] = ()
    ) -> bool:
        """Whether the rule is for this exit; the output has the texts ``found``, and matches of the
        patterns ``matched``.
        """
        return (
            (not self.exit_codes or code in self.exit_codes)
            and (not self.roles or role in self.roles)
            and (not self.log or self.log in found)
            and (not self.log_pattern or self.log_pattern in matched)
        )

    def __str__(self) -> str:
        codes = ",".join(map(str, self.exit_codes)) or "any exit code"
        condition = f" with {self.log!r} in its log" if self.log else ""
        if self.log_pattern:
            condition += (
                f"{' and' if condition else ''} with a match of {self.log_pattern!r} in its log"
            )
        return f"{codes} of {', '.join(self.roles) or 'any role'}{condition} means {self.action}"


@dataclass(frozen=True)
class ExitRules:
    """The policy of a workload, and the rules that go before it; the first that fits counts."""

    policy: RestartPolicy = RestartPolicy.ON_FAILURE
    rules: tuple[ExitRule, ...] = ()

    @property
    def log_texts(self) -> tuple[str, ...]:
        """The texts that rules look for in the output of a process."""
        return tuple(dict.fromkeys(rule.log for rule in self.rules if rule.log))

    @property
    def log_patterns(self) -> tuple[str, ...]:
        """The patterns that rules look for in the output of a process."""
        return tuple(dict.fromkeys(rule.log_pattern for rule in self.rules if rule.log_pattern))

    def rule_for(
        self,
        role: str,
        reason: Reason | None,
        code: int | None,
        found: Collection[str] = (),
        matched: Collection[str] = (),
    ) -> ExitRule | None:
        """The rule for the end of a process of ``role``, whose output has the texts ``found`` and
        matches of the patterns ``matched``.
        """
        if reason not in EXITS or code is None:
            return None
        return next((rule for rule in self.rules if rule.fits(role, code, found, matched)), None)

    def restarts_after(self, reason: Reason | None, code: int | None) -> bool:
        """Whether the policy allows another start after a failure; rules are not asked."""
        by_code = reason in EXITS and reason is not Reason.HUNG
        if self.policy is RestartPolicy.EXIT_CODE and by_code:
            return not is_permanent(code)
        return self.policy is not RestartPolicy.NEVER


ON_FAILURE = ExitRules()
