"""The HTTP front door. Routes translate and do nothing else."""
