"""What `hk-backend bench NAME` measures: a module with a `command` for each name."""
