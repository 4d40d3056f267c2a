"""What `raddle scan` costs with 150,000 pods: `server` is an API server of canned answers, `__main__` measures."""
