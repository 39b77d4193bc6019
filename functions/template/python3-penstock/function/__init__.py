"""The function of this image; its folder takes this one's place."""
