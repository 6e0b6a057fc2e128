"""Wanted state, status, events and leases. ``base`` is the contract; ``memory`` and ``sql`` keep
it.
"""
