"""Code that the plugins of all engines share; it imports no engine."""
