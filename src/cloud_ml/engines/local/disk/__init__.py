"""Disk space: what jobs and ended jobs use, the shares of all jobs when the disk is nearly
full, and the limits that the kernel keeps with project quotas.
"""
