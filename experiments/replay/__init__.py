"""``penstock replay``: a user's trace through every scaler that fits, and the recommended one."""
