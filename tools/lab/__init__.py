"""The machine lab: real Linux kernels under QEMU with any CPU and NUMA shape.

Two uses. It records the machines that tests, demo and docs read (tests/machines/*.txt). And it runs the real thing: a
guest with Python, ONNX Runtime and the shipped runtime, where containers' cgroups are made as the kubelet makes them
and every thread of every pool is asked where it may run. QEMU emulates, so counts and places are real and times
mean nothing.
"""
