"""Scalers, one file each, readable line against line with their papers."""
