"""The life of a train job: its normalised spec, its phases, and the decision taken at each look."""
