"""The control loop: observe, decide, act, journal; scalers, monitors, actuators and the plan service."""
