"""The gates of a promotion: which apply, how they are measured, and how figures are judged against limits."""
