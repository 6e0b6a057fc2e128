"""Buckets, objects and uploads, and many small objects in one body."""
