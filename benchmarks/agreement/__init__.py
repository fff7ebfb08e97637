"""Model repositories with one thing changed, and what the real Triton says of each: the parts of check_agreement.py."""
