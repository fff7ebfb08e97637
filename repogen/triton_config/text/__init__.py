"""config.pbtxt as text: parsing, source positions, comparison, and how shapes are written."""
