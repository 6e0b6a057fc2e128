"""Local code on its way to the server: packed, compared by digest, and uploaded."""
