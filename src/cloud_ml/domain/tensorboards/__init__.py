"""TensorBoards: what they show, how they run, and when they pause. Pure."""
