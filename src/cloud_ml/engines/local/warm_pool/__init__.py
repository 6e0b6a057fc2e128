"""Interpreters that import a framework before their job comes: one for one job, inside its
organisation's fence.
"""
