"""`hk-backend bench attention`: cases and their timing, the sweep of options, the table."""
