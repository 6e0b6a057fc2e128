"""What values of settings must be, beside their types."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Iterable

from cloud_ml.models import common
from cloud_ml.models.admin.quota import limit_of
from cloud_ml.settings import reachable
from cloud_ml.settings.all_settings import Settings
from cloud_ml.settings.application_names import check_applications
from cloud_ml.settings.gateway import ports_of
from cloud_ml.settings.jobs import EngineSettings
from cloud_ml.settings.sizes import MIB

_WORDS = {
    "server.log_format": ("auto", "text", "json"),
    "api.gpu_missing": ("refuse", "ignore"),
    "trainers.urls": ("public", "none"),
    "engine.sandbox": ("auto", "require", "landlock", "none"),
    "engine.cgroups": ("auto", "require", "none"),
    "engine.network": ("auto", "tenant", "host", "none"),
    "gateway.original_clients": ("auto", "yes", "no"),
}
_LEAST = {
    "server.database_readers": 1,
    "server.connections": 1,
    "server.events_per_record": 10,
    "server.header_limit_bytes": 1024,
    "server.header_limit_count": 10,
    "server.header_timeout_s": 0.1,
    "server.body_timeout_s": 0.1,
    "server.write_timeout_s": 0.1,
    "api.body_limit_bytes": 1024,
    "api.list_page_limit": 1,
    "keys.per_user": 1,
    "keys.token_lifetime_limit_s": 1,
    "api.heartbeat_s": 0.1,
    "api.stream_limit_s": 1,
    "controller.workers": 1,
    "controller.poll_s": 0.1,
    "controller.lease_ttl_s": 1,
    "storage.upload_part_limit_bytes": MIB,
    "storage.uploads_per_bucket": 1,
    "tracking.search_s": 0.1,
    "tracking.job_connections": 1,
    "trainers.url_timeout_s": 1,
    "trainers.url_parallel": 1,
    "engine.log_limit_bytes": 4096,
    "engine.kept_attempts": 1,
    "engine.usage_period_s": 0.1,
    "engine.disk_period_s": 0.1,
    "engine.network_connections": 1,
    "environments.tidy_s": 1,
    "engine.max_processes": 1,
    "engine.tasks_per_job": 1,
    "engine.tasks_per_array": 1,
    "engine.zygote_idle_s": 1,
    "engine.zygote_import_s": 1,
    "gateway.connections": 1,
    "gateway.message_limit_bytes": 1024,
    "gateway.bodies_bytes": 1024,
    "gateway.organisation_bodies_bytes": 1024,
    "gateway.answer_head_bytes": 1024,
    "gateway.interim_answers": 0,
    "gateway.control_frames": 100,
    "gateway.answer_pause_s": 1,
    "gateway.replica_settings_s": 1,
    "gateway.replica_head_s": 1,
    "gateway.replica_unread_s": 1,
    "gateway.replica_window_bytes": 65_536,
    "gateway.replica_turn_units": 1,
    "gateway.caller_turn_units": 1,
    "gateway.caller_head_bytes": 1024,
    "gateway.replica_streams": 1,
    "gateway.caller_http1_head_s": 1,
    "gateway.caller_http1_body_s": 1,
    "gateway.caller_http1_idle_s": 1,
    "gateway.caller_http1_pipelined": 1,
    "gateway.caller_http1_linger_s": 1,
    "gateway.caller_http1_half_closed_s": 1,
    "gateway.caller_greeting_s": 1,
    "gateway.caller_http2_streams": 1,
    "gateway.caller_http2_window_bytes": 65_536,
    "gateway.caller_http2_head_s": 1,
    "gateway.caller_http2_body_s": 1,
    "gateway.caller_http2_unread_s": 1,
    "gateway.caller_http2_idle_s": 1,
    "gateway.timeout_s": 0.1,
    "gateway.waiting_s": 0.1,
    "gateway.in_flight": 1,
    "gateway.attempts": 1,
    "gateway.token_limit_s": 1,
    "gateway.target_in_flight": 0.01,
    "gateway.scale_down_s": 1,
    "gateway.kept_releases": 0,
    "gateway.load_tries": 1,
    "secrets.size_limit_bytes": 1,
    "applications.port": 1,
    "applications.ticket_s": 1,
    "applications.session_s": 1,
    "applications.start_s": 1,
    "applications.idle_s": 1,
    "applications.mirror_bytes": 1 << 20,
    "studies.trials_per_study": 1,
    "studies.parallel_trials": 1,
    "studies.tuner_processes": 1,
    "studies.tuner_memory_bytes": 512 << 20,
    "studies.tuner_answer_s": 1,
}
"""Numbers that may not be smaller; all others may be 0."""
_MOST = {
    "server.port": 65_535,
    "applications.port": 65_535,
    "applications.public_port": 65_535,
    "server.events_per_record": 1000,
    "gateway.ports_share": 1,
    "gateway.caller_http2_window_bytes": 2**31 - 1,
    "gateway.replica_window_bytes": 2**31 - 1,
}
"""Numbers that may not be larger."""


_SIZES_WITH_WORDS = ("default_disk", "kept_disk")

_PORTS = "ports and ranges of ports from 1 to 65535, such as 8600-8999"

_ORIGIN = re.compile(r"https?://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
"""As ``net.http1.cors`` reads them."""


def check(settings: Settings) -> None:
    """Look at each value.

    Raises:
        InvalidRequest: The first that is wrong, with what is allowed.
    """
    _check_words_and_numbers(settings)
    _check_proxies(settings.server.proxy_addresses)
    _check_pythons(settings.pythons)
    _check_quota(settings)
    _check_sizes(settings)
    _check_network(settings.engine)
    _check_ports("gateway.ports", settings.gateway.ports)
    _check_ports("engine.ports", settings.engine.ports)
    check_applications(settings)
    _check_origins(
        "api.cors_origins",
        settings.api.cors_origins,
        "exact origins such as https://app.example.com, with commas between",
    )
    _check_origins(
        "gateway.cors_origins",
        settings.gateway.cors_origins,
        "origins such as https://app.example.com, with commas between, or *",
        any_origin=True,
    )


def _check_words_and_numbers(settings: Settings) -> None:
    for theme in dataclasses.fields(Settings):
        for setting in dataclasses.fields(values := getattr(settings, theme.name)):
            name, value = f"{theme.name}.{setting.name}", getattr(values, setting.name)
            if name in _WORDS and value not in _WORDS[name]:
                raise common.refuse(name, value, "one of " + ", ".join(_WORDS[name]))
            if isinstance(value, (int, float)):
                _check_number(name, value)


def _check_pythons(versions: Iterable[str]) -> None:
    for version in versions:
        if not re.fullmatch(r"3\.([89]|[1-9]\d)", version):
            raise common.refuse(
                "environments.pythons",
                version,
                "versions such as 3.12, from 3.8 up, with commas between",
            )


def _check_quota(settings: Settings) -> None:
    for name, text in dataclasses.asdict(settings.quota).items():
        if isinstance(text, str) and text:
            limit_of(f"quota.{name}", name.rpartition("_")[2], text)


def _check_sizes(settings: Settings) -> None:
    for name in ("default_memory", "default_disk", "kept_disk", "disk_reserve", "tool_disk"):
        size = getattr(settings.engine, name)
        if size and not (name in _SIZES_WITH_WORDS and size in ("auto", "none")):
            common.check_memory(f"engine.{name}", size)
    if settings.engine.default_cpu:
        common.check_cpu("engine.default_cpu", settings.engine.default_cpu)
    if settings.outputs.max_bytes:
        common.check_memory("outputs.max_bytes", settings.outputs.max_bytes)
    if settings.storage.disk_reserve:
        common.check_memory("storage.disk_reserve", settings.storage.disk_reserve)
    for name in ("zygote_memory", "tool_memory"):
        common.check_memory(f"engine.{name}", getattr(settings.engine, name))


def _check_ports(name: str, text: str) -> None:
    try:
        found = ports_of(text)
    except ValueError as error:
        raise common.refuse(name, str(error), _PORTS) from None
    if not found:
        raise common.refuse(name, text, _PORTS)


def _check_origins(name: str, text: str, allowed: str, *, any_origin: bool = False) -> None:
    """``any_origin``: a star stands for every origin."""
    for origin in filter(None, map(str.strip, text.split(","))):
        if any_origin and origin == "*":
            continue
        if _ORIGIN.fullmatch(origin) is None:
            raise common.refuse(name, origin, allowed)


def _check_number(name: str, value: float) -> None:
    least, most = _LEAST.get(name, 0), _MOST.get(name)
    if not least <= value < float("inf") or (most is not None and value > most):
        upwards = "up" if most is None else f"to {most}"
        raise common.refuse(name, value, f"a number from {least} {upwards}")


def _check_proxies(addresses: str) -> None:
    for text in filter(None, (each.strip() for each in addresses.split(","))):
        try:
            ipaddress.ip_network(text)
        except ValueError:
            raise common.refuse(
                "server.proxy_addresses",
                text,
                "addresses or networks such as 127.0.0.1 or 10.0.0.0/24, with commas",
            ) from None


def _check_network(engine: EngineSettings) -> None:
    try:
        reachable.parse(engine.network_allow)
    except ValueError as error:
        raise common.refuse("engine.network_allow", str(error), reachable.ALLOWED) from None
    for word in engine.network_dns.replace(",", " ").split():
        try:
            ipaddress.IPv4Address(word)
        except ValueError:
            raise common.refuse(
                "engine.network_dns", word, "IPv4 addresses, with commas between"
            ) from None
    if engine.network_range:
        allowed = "a range of IPv4 addresses from /8 to /30, such as 10.99.0.0/20"
        try:
            wide = 8 <= ipaddress.IPv4Network(engine.network_range).prefixlen <= 30
        except ValueError:
            wide = False
        if not wide:
            raise common.refuse("engine.network_range", engine.network_range, allowed)
