"""Buckets and the objects in them: owners, uploads, limits."""
