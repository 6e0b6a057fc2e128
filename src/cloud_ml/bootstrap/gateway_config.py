"""The gateway's configuration and the addresses of applications, from the settings."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import cloud_ml
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.gateway import certificates
from cloud_ml.gateway.config import ApplicationsConfig, GatewayConfig
from cloud_ml.settings import Settings
from cloud_ml.usecases.tensorboards.tensorboards import ApplicationAddresses


def gateway_config(settings: Settings) -> GatewayConfig:
    """What the gateway is told at its start."""
    gateway, (cert, key) = settings.gateway, settings.gateway_tls
    return GatewayConfig(
        folder=str(settings.data_dir / "gateway"),
        version=cloud_ml.__version__,
        host=settings.gateway_host,
        public_host=settings.public_gateway_host,
        user=settings.engine.tenant_uid_base if os.geteuid() == 0 else 0,
        job_sockets=str(Ledger(settings.data_dir / "engine").jobs),
        tls_cert=cert and str(Path(cert).absolute()),
        tls_key=key and str(Path(key).absolute()),
        certificate=certificates.digest(cert, key),
        connections=gateway.connections,
        message_limit_bytes=gateway.message_limit_bytes,
        bodies_bytes=gateway.bodies_bytes,
        organisation_bodies_bytes=gateway.organisation_bodies_bytes,
        answer_head_bytes=gateway.answer_head_bytes,
        interim_answers=gateway.interim_answers,
        control_frames=gateway.control_frames,
        answer_pause_s=gateway.answer_pause_s,
        replica_settings_s=gateway.replica_settings_s,
        replica_head_s=gateway.replica_head_s,
        replica_unread_s=gateway.replica_unread_s,
        replica_window_bytes=gateway.replica_window_bytes,
        replica_turn_units=gateway.replica_turn_units,
        caller_turn_units=gateway.caller_turn_units,
        caller_head_bytes=gateway.caller_head_bytes,
        caller_dropped_body_bytes=gateway.caller_dropped_body_bytes,
        caller_empty_frames=gateway.caller_empty_frames,
        caller_kept_head_bytes=gateway.caller_kept_head_bytes,
        replica_streams=gateway.replica_streams,
        caller_http1_head_s=gateway.caller_http1_head_s,
        caller_http1_body_s=gateway.caller_http1_body_s,
        caller_http1_idle_s=gateway.caller_http1_idle_s,
        caller_http1_pipelined=gateway.caller_http1_pipelined,
        caller_http1_linger_s=gateway.caller_http1_linger_s,
        caller_http1_half_closed_s=gateway.caller_http1_half_closed_s,
        caller_greeting_s=gateway.caller_greeting_s,
        caller_http2_streams=gateway.caller_http2_streams,
        caller_http2_window_bytes=gateway.caller_http2_window_bytes,
        caller_http2_head_s=gateway.caller_http2_head_s,
        caller_http2_body_s=gateway.caller_http2_body_s,
        caller_http2_unread_s=gateway.caller_http2_unread_s,
        caller_http2_idle_s=gateway.caller_http2_idle_s,
        stream_unread_bytes=gateway.stream_unread_bytes,
        timeout_s=gateway.timeout_s,
        waiting=gateway.waiting,
        waiting_s=gateway.waiting_s,
        in_flight=gateway.in_flight,
        attempts=gateway.attempts,
        token_limit_s=gateway.token_limit_s,
        drain_s=gateway.drain_s,
        cors_origins=gateway.cors_origins,
        open_health=gateway.open_health,
        log_format="json" if settings.server.log_format == "json" else "text",
        applications=ApplicationsConfig(
            host=settings.applications_host,
            domain=settings.applications.domain,
            tls=settings.applications_tls,
            secure=not settings.applications.local,
            start_s=settings.applications.start_s,
        ),
    )


def application_addresses(
    settings: Settings, why_unbound: Callable[[], str]
) -> ApplicationAddresses:
    """Where browsers reach applications, or why they cannot."""
    chosen = settings.applications

    def problem() -> str:
        why = why_unbound()
        return f"port {chosen.port} (applications.port) cannot be had: {why}" if why else ""

    return ApplicationAddresses(
        domain=chosen.domain,
        port=chosen.public_port or chosen.port,
        secure=not chosen.local,
        listens_at=chosen.port,
        ticket_s=chosen.ticket_s,
        session_s=chosen.session_s,
        problem=problem,
    )
