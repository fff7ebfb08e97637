"""Model facts and spec sections -> ModelConfig: rendered, parsed back, compared, and checked against the graph."""
