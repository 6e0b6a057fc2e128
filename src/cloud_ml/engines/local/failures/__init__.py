"""Why a job failed: its own last words, and what usually helps. Standard library only."""
