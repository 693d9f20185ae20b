"""`hk-backend bench linear`: cases, their timing and bounds, the sweep of options, the table."""
