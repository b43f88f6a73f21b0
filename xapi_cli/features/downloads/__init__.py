"""Downloads that are kept when they are interrupted, and resumed."""
