"""Train jobs: what is asked for, what is answered about them, and what they leave."""
