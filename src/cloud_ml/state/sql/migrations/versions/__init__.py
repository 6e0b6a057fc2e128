"""One file per step, named after its number."""
