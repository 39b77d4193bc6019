"""``penstock replay``: somebody's own trace through every scaler that fits, and which of them to take."""
