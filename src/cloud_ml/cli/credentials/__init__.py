"""Contexts with servers and keys, the current user, access tokens, and secrets for jobs."""
