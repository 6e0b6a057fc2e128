"""Readers of what training programs write about themselves. Standard library only, and pure: bytes
come in, and what they mean comes out.
"""
