"""Reports and errors -> Markdown: the step summary on GitHub, and the report beside a run in MLflow."""

from repogen.report.markdown import error_markdown, promotion_markdown, report_markdown, smoke_markdown
from repogen.report.notes import model_notes

__all__ = ["error_markdown", "model_notes", "promotion_markdown", "report_markdown", "smoke_markdown"]
