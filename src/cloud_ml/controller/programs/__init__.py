"""What jobs, replicas and TensorBoards run: trainers, packages, and wheels of ours."""
