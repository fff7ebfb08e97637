"""Fuzzers of every reader of files that repogen did not write; see README.md."""
