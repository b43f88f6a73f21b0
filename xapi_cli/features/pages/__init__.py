"""Follow the links of a list that has several pages."""
