"""Storage `keyring`: records in the operating system's keyring, through the `keyring` library."""
