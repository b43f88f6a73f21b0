"""What a request carries: the ITEM grammar, and bodies of any size that can be sent twice."""
