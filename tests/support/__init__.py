"""What tests share beside tools: fixtures in hand, programs, strategies. `runtimes` is that of the tests of real runtimes."""
