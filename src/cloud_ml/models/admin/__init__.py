"""Organisations, users, access keys, access tokens, quotas and the audit log."""
