"""One reconciler per kind of record: read, observe, decide, commit or act."""
