"""The bin-pack paper (CLOSER 2024): experiments, printed values, what we get."""
