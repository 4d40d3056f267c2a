module raddle.dev/benchmarks/webhookclient

go 1.21
