"""Names of files: wildcards, what stays behind, escapes, the home folder. Pure."""
