"""What users send to be trained: unpacked, read without running it, and placed for the path."""
