"""newsvendor beside rivals that are tuned on the very load that is scored."""
