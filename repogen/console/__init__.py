"""Reports and errors as text for people, progress, and JSON for machines."""
