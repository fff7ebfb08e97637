"""Parts of check_agreement.py: repository variants with one change each, and the results of loading them on Triton."""
