"""Examples: each folder is one complete program; run it as a module from the root of the repository."""
