"""Reports, findings and errors as text, Markdown, JSON and GitHub annotations; progress on a terminal."""
