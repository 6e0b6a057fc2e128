"""What runs and their metrics cost: lists, points, event files, and a server that waits."""
