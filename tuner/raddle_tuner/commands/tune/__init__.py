"""`raddle tune`: options and what people see; the measuring is `trials`, the deciding `tuning`."""
