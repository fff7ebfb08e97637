"""The functions of ``import repogen``: one per command, with the command's options as keyword arguments.

``repogen/__init__.py`` exports them lazily. Commands of the CLI call them and render their reports.
"""
