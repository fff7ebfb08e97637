"""Functions that write the files of cases."""
