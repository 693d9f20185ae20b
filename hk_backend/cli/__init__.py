"""The command line: the command `hk-backend`."""
