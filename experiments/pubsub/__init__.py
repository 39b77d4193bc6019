"""Elastic pub/sub (Nguyen, Nahrstedt): experiments, figures, printed claims, what we get."""
