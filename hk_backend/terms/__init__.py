"""What is said between the floors: requests, verdicts, weight formats, paged caches."""
