"""Who is who and who may what: organisations, users, keys, tokens, the audit log."""
