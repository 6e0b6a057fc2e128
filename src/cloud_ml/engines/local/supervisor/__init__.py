"""The process that runs one gang: it stages, starts, watches, reports, and cleans up."""
