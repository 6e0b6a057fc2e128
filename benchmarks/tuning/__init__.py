"""How good studies are: our algorithms beside Optuna's, on problems whose best value is known."""
