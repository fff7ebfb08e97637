"""Values that steps pass to each other, frozen and typed, and the Protocols that packages share. No I/O."""
