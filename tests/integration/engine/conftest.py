"""A real local engine with every fence that this machine gives."""

from support.engines import engine, engine_settings, findings, shared_engine, shared_findings

__all__ = ["engine", "engine_settings", "findings", "shared_engine", "shared_findings"]
