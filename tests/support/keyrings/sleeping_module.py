"""A backend whose module never finishes loading."""

import time

time.sleep(3600)
