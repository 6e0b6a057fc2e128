"""What every resource controller runs on: a keyed queue, a worker pool, the change feed,
leadership and timers.
"""
