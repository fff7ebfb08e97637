"""The reference pages of rule codes and error codes: one source for ``repogen explain`` and for the docs site.

``rules/RG101.md`` is the page of a rule. ``errors/source.md`` has a section per error code, ``## `source.random```.
"""

from repogen.explain.pages import codes, explain

__all__ = ["codes", "explain"]
