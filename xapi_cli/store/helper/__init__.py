"""Storage `helper`: records in a program that implements the Docker credential helper protocol."""
