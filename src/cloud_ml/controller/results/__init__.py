"""What jobs leave: outputs, metrics and checkpoints."""
