"""The zoo is no tests: --doctest-modules would import every model, and transformers with it."""

collect_ignore_glob = ["*"]
