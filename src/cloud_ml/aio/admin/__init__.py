"""Organisations, users, keys, quotas, access tokens and the audit log."""
