"""Points of runs: how they are stored, summarised and read. Pure."""
