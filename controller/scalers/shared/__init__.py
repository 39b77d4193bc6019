"""Arithmetic and base classes that several scalers use. No scaler is registered from here."""
