"""Train jobs: what a caller may ask of them, their code, logs and outputs."""
