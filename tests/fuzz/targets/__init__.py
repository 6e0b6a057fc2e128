"""The harnesses, by what they read; ``fuzz.harness.load`` gives them."""
