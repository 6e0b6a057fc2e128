"""Buckets and objects: the calls, and transfers of files in both directions."""
