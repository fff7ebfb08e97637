"""What one step hands to the next: frozen, typed values and the Protocols that packages share. No I/O."""
