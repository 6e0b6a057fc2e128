"""What trainers need: requirements resolved, installed into layers that jobs share, and compiled."""
