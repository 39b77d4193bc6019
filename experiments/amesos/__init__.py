"""AMESoS (DEBS 2022): experiments, figures, printed claims, what we get."""
