"""How xapi comes by tokens: the account, the password grant, the 401 flow, what is kept and remembered."""
