"""The explanations of `hk-backend time NAME --explain`: a module for each name."""
