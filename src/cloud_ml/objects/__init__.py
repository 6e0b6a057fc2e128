"""Bytes: trainers, models, outputs. ``base`` is the contract; each other module is one kind of
store.
"""
