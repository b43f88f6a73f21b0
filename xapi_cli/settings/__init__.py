"""Settings: flag, environment variable, profile, default."""
