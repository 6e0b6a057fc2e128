"""Options of commands, and the types of their values."""
