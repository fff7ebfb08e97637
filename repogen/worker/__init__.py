"""Builds each model, and runs evaluation code, in a process of its own: with limits, and a crash becomes an error."""
