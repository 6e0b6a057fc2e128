"""Words of fields: names, amounts, durations, and what somebody may have meant by a wrong one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from cloud_ml.cli.completion import candidates
from cloud_ml.cli.jobs import defaults, times
from cloud_ml.cli.jobs import submit_arguments as typed_words
from cloud_ml.cli.storage import plan as storage_plan
from cloud_ml.errors import InvalidRequest, NotFound
from cloud_ml.models import common, suggestions
from cloud_ml.models.admin import quota
from cloud_ml.models.paths import escaping
from cloud_ml.objects.multipart import check_upload_id
from fuzz.harness import pieces, target, text

NOW = datetime(2026, 1, 31, tzinfo=UTC)
CHECKS: list[Callable[[str, Any], Any]] = [
    common.check_name,
    common.check_module,
    common.check_text,
    common.check_cpu,
    common.check_memory,
    common.check_count,
    common.check_duration,
    common.check_bucket,
    common.check_key,
]


@target(
    "models.common",
    "models.suggestions",
    "models.admin.quota",
    "objects.multipart",
    seeds=["linear-1", "trainer.task", "0.5", "100M", "1.5G", "1d12h", "90s", "500m", "2 hours", "My Job", "a/b.py", "١s",
           "9" * 400, "1e400", "0.00K", "99999999999999999999999G", "a" * 64, "\u202eabc", "ﬁle", "K", "1000000d", "unlimited"],
    words=["K", "M", "G", "d", "h", "m", "s", ".", "-", "e9", "\u0661", "\u00b2", "\u2160", "\u200b", "\0", "../", "ß", "İ"],
)  # fmt: skip
def field_words(data: bytes) -> None:
    """Each rule refuses with the field, or gives its value in a form that stays; a suggestion is
    one that is allowed.
    """
    value = text(data)
    for check in CHECKS:
        with contextlib.suppress(InvalidRequest):
            found = check("field", value)
            assert check("field", found) == found
            if check is common.check_memory:
                assert common.memory_bytes(found) > 0
            if check is common.check_cpu:
                assert common.cpu_millis(found) > 0
            if check is common.check_duration:
                assert common.duration_seconds(found) > 0
    for suggest, check in (
        (suggestions.name, common.check_name), (suggestions.module, common.check_module), (suggestions.memory, common.check_memory),
        (suggestions.cpu, common.check_cpu), (suggestions.duration, common.check_duration),
    ):  # fmt: skip
        if suggestion := suggest(value):
            check("field", suggestion)
    for resource in ("cpu", "memory", "gpu", "count", "storage"):
        with contextlib.suppress(InvalidRequest):
            limit = quota.limit_of("field", resource, value)
            assert limit is None or -1 <= limit < 2**63
    with contextlib.suppress(InvalidRequest, NotFound):
        check_upload_id(value)
    with contextlib.suppress(InvalidRequest):
        common.check_idempotency_key(value)
    with contextlib.suppress(InvalidRequest):
        common.check_environment("environment", {value: value})
    for number in (len(data) * 977 % 2**63, int.from_bytes(data[:8] or b"\0", "big")):
        shown = common.format_memory(number)
        assert shown.endswith("B") or abs(common.memory_bytes(shown) - number) <= number / 50


@target(
    "cli.jobs.times",
    seeds=["2h", "1d12h", "2026-01-31", "2026-01-31T12:00", "0001-01-01", "9999-12-31T23:59", "9" * 5000 + "s", "99999999999d", "١h"],
    words=["d", "h", "m", "s", "T", ":", "-", "+23:59", "Z", "0001", "9999"],
)  # fmt: skip
def moments(data: bytes) -> None:
    """A time of a command line, or the usage error."""
    with contextlib.suppress(click.UsageError):
        found = times.moment("--since", text(data), NOW)
        assert found is None or found.tzinfo is not None


@target(
    "cli.jobs.defaults",
    "cli.completion.candidates",
    seeds=["trainer-1.0.tar.gz\0A=b", "fds://b/k/trainer-v2.whl\0A", ".\0=b", "~nobody/x\0", "\0", "a" * 300 + "\0x=", "failed,ru\0a"],
    words=[".tar.gz", ".whl", "-1.0", "://", "/", "~", "..", "=", ","],
)  # fmt: skip
def typed(data: bytes) -> None:
    """What stands on a command line: a usage error or a refusal that names the field, or fields
    of a job.
    """
    first, second = (one.replace("\0", "") for one in map(text, pieces(data, 2)))
    defaults.looks_like_code(first)
    with contextlib.suppress(InvalidRequest):
        common.check_name("job_name", defaults.name_for("fds://" + first))
    with contextlib.suppress(click.UsageError):
        typed_words.read_pairs("--env", [first, second], {"A": "b"})
    nothing: Any = SimpleNamespace()
    for one in candidates.state_names(nothing, nothing, first):
        assert one.startswith(first.rpartition(",")[0])


@target(
    "cli.storage.plan",
    seeds=["fds://bucket/a*\0a/b", "fds://b/**/x[!a-c]?\0x", "fds://b/[z-a]\0z", "fds://b/[]\0a", "fds://b/" + "*a" * 20 + "\0" + "a" * 60],
    words=["*", "**", "**/", "?", "[", "]", "!", "^", "-", "\\"],
)  # fmt: skip
def patterns(data: bytes) -> None:
    """Wildcards find what they name, in bounded time, or nothing."""
    pattern, key = map(text, pieces(data, 2))
    pattern, key = pattern[:300], key[:300]
    if not storage_plan.is_pattern(pattern):
        return
    listed = [SimpleNamespace(uri=f"fds://bucket/{key}")]

    def head(_uri: str) -> Any:
        raise NotFound("no")

    store: Any = SimpleNamespace(head=head, list_objects=lambda _literal: listed)
    with contextlib.suppress(NotFound, InvalidRequest):
        assert storage_plan.matching(store, pattern) == listed


@target(
    "cli.jobs.defaults",
    seeds=["a", "my model.py", "123", "x" * 300, "é"],
    words=[".py", "-", "_", "test_"],
)
def module_names(data: bytes) -> None:
    """The module of a script that has any name that a file can have."""
    from fuzz.harness import scratch

    name = text(data).replace("/", "").replace("\0", "")[:80] + ".py"
    with scratch() as folder:
        with contextlib.suppress(OSError):
            (folder / name).touch()
        with contextlib.suppress(InvalidRequest):
            common.check_module("module_name", defaults.module_for(str(Path(folder))))


@target(
    "models.paths.escaping",
    seeds=["bad\\xff", "a\\\\b", "new\\nline", "\\u202e", "\\U000e0001", "\\", "\\ud800"],
    words=["\\", "x", "u", "U", "ff", "0000", "\x85"],
)
def escaped_names(data: bytes) -> None:
    """A path leads to a name that can be shown, and back; any other text is refused or names a
    path.
    """
    shown = escaping.escaped_whole(data)
    assert shown.isprintable()
    assert escaping.unescape_path(shown) == data
    with contextlib.suppress(InvalidRequest):
        escaping.unescape_path(text(data))
