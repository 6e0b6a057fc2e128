"""What stages and runs a task. Standard library only, and it imports nothing else of ours."""
