"""What the plugins of all engines share; imports no engine."""
