"""``cloudml storage``: buckets and objects, and how files are copied between them and this machine."""
