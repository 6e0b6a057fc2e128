"""Model services: what is asked for, what is answered about them, and names of model files."""
