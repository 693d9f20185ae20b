"""Prints results, progress and errors in the same way for every command."""
