"""config.pbtxt: the typed sections of a spec, the text and its source positions, the rules, and rendering.

tritonclient, and gRPC with it, is imported when a text is parsed, not when this package is imported.
"""
