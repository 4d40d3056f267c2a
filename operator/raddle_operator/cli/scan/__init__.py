"""`raddle scan`: asks a cluster or files, lets `scanning` decide, and writes what people or tools read."""
