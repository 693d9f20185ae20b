"""What every command shares: how it prints, and how an error ends it."""
