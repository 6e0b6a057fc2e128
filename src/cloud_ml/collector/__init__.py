"""The process that parses what jobs have written: without keys and rights, and replaced when it dies."""
