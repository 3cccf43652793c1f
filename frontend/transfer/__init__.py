"""Export and import of samples, in forms that other programs read."""
