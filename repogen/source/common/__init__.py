"""What several kinds of source share: callables, example inputs, symbolic dims and file formats."""
