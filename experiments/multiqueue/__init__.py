"""Elastic Multi-M/M/s/K (Kathirvel, Parasuraman, 2019): experiments, printed tables, what we get."""
