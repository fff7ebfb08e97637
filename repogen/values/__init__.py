"""What the rooms hand to each other: frozen, typed, and free of heavy imports."""
