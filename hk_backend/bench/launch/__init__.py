"""`hk-backend bench launch`: from an engine's forward to the launch of a kernel."""
