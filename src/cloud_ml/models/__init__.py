"""The wire types: what travels over HTTP, as standard-library dataclasses. Nothing here does
input or output.
"""
