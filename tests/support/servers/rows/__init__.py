"""The rows, by module: each file beside this one has some in `ROWS`."""
