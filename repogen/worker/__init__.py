"""Builds one model in a process of its own: time and memory limits, and a crash becomes an error value."""
