"""Labels: their settings, their release, and the noise for a target."""
