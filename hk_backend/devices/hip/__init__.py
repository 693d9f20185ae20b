"""The hip device, on an AMD GPU or on the emulator of one."""
