"""What `hk-backend time NAME --explain` explains: a module for each name."""
