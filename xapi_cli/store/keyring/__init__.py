"""Storage `keyring`: the keyring library, bounded in time."""
