"""Storage `helper`: tokens in a program that implements the docker credential helper protocol."""
