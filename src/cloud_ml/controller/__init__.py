"""The loops that move records towards what is wanted."""
