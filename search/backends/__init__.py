"""Ways of running trials: one module per backend."""
