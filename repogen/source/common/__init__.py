"""Shared by several kinds of source: user callables, example inputs, symbolic dims and file formats."""
