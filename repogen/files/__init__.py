"""Reads files that repogen did not write in the same run, within limits on size and memory."""
