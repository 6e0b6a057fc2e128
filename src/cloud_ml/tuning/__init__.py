"""How studies choose the parameters of their trials: an algorithm a file, chosen by its name."""
