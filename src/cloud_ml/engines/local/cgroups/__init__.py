"""Limits by control groups, version 1 and 2, behind one small face.

Making a group, joining and removing it cost milliseconds, so the spawner keeps a few ready
(``Pool``) and removes used ones when nobody waits. A group serves one task and is never used again:
its counters (out-of-memory kills, peak) are then that task's alone.

The file system's root is a parameter, so that version 2's rules are tested against a folder that
only looks like it.
"""

from cloud_ml.engines.local.cgroups.base import Group, Hierarchy, Limits, Sample
from cloud_ml.engines.local.cgroups.finding import find, restore
from cloud_ml.engines.local.cgroups.pool import Pool
from cloud_ml.engines.local.cgroups.v1 import GroupV1, HierarchyV1
from cloud_ml.engines.local.cgroups.v2 import GroupV2, HierarchyV2

__all__ = [
    "Group",
    "GroupV1",
    "GroupV2",
    "Hierarchy",
    "HierarchyV1",
    "HierarchyV2",
    "Limits",
    "Pool",
    "Sample",
    "find",
    "restore",
]
