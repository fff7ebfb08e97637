"""The gates of a promotion: a Protocol, the built-in gates, and ``--gate``."""
