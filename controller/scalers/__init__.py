"""Scalers, one file each, in the order of their papers' algorithms."""
