"""``repogen init``: writes a commented, working spec for an example or an existing model, and a GitHub workflow."""
