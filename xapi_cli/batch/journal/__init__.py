"""Keep the results of a batch, so that it can be resumed."""
