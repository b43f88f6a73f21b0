"""Storage `redis`: tokens and login locks in Redis or Valkey, shared by machines."""
