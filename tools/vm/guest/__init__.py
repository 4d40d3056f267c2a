"""What runs inside guests and containers, on their own Python and busybox."""
