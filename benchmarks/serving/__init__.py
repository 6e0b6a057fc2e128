"""The model server beside others: processor time of a request, what callers wait, memory.
``make bench-serving``.
"""
