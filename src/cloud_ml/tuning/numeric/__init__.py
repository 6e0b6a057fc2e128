"""Algorithms that compute with numpy and scipy. Only the tuner's process and benchmarks import this
room: the server stays as small as it is without.
"""
