"""Model services: what is wanted of one, how it stands, and what follows. Pure."""
