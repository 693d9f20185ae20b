"""What every engine's plugin shares, and neither engine owns; imports no engine."""
