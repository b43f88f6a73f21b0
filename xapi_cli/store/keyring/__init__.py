"""Storage `keyring`: records in the operating system's keyring, through the `keyring` library."""

SELECTED_BY = ("PYTHON_KEYRING_BACKEND", "DBUS_SESSION_BUS_ADDRESS")  # the variables that lead to another keyring
