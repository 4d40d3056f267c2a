"""`raddle top`: what runs in the cluster now, as agents report it."""
