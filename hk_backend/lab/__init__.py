"""Builds, analyses, models and times kernels; nothing that serves imports it."""
