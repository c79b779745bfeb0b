"""A run on veRL: its overrides, its reward, its launch. Nothing here imports veRL, which has an environment of its own."""
