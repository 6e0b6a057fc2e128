"""Buckets as folders of this machine, shared with the jobs of their owner.

A job has its organisation's buckets mounted writable, so what lies in them is hostile: links, pipes
and devices may stand anywhere, and a folder may turn into a link between two system calls. Hence
the one rule of this package: **no path is ever handed to the kernel**, only single names below a
folder that is open already, and never through a link (``tree``). Folders of the store itself are
trusted.
"""

from cloud_ml.objects.local.store import LocalObjectStore

__all__ = ["LocalObjectStore"]
