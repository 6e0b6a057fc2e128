"""What can run a model, a file for each format; ``base`` is the contract."""
