"""Promote a registered version, roll an alias back, and show what was served when."""
