"""Programs that run in the guest, in its own Python and busybox: nothing on the host imports them."""
