"""Storage `redis`: records, login locks, logouts and login failures in Redis or Valkey, shared by machines."""
