"""The commands `hk-backend bench NAME`: a module with a `command` for each name."""
