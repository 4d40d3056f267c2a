"""What tests of several areas share: machines, clusters, runtimes, kubelets, builders of objects."""
