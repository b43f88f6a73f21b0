"""Settings, in order of precedence: flag, environment variable, profile, default."""
