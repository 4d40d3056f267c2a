"""What runs inside the node and its pods, not here."""
