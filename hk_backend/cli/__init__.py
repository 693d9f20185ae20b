"""What a person runs: the command `hk-backend`."""
