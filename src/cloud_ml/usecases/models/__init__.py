"""Model services: what a caller may ask of them, their releases and replicas."""
