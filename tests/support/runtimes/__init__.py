"""What the tests of real runtimes share: programs that use them, and what those see. tools/runtimes fetches them."""
