"""Types that all floors share: requests, verdicts, weight formats, paged caches."""
