"""What can be removed: each feature is one folder and one row of the feature table."""
