"""`hk-backend bench launch`: times the path from an engine's forward to a kernel's launch."""
