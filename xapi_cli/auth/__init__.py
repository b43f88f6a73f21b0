"""Authentication: the account, the password grant, the 401 flow, token formats and recorded login failures."""
