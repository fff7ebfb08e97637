"""Writers of the files that cases are made of."""
