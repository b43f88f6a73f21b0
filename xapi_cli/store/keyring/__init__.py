"""Storage `keyring`: the keyring library, with time limits."""
