"""What a model is made of, before any trial: `Analysis`, made by pure functions of a graph and of profiled times.

The edges are `onnx_model` and `torchscript`, which read files, and `measure`, which starts `probe` in processes of its
own: one for each count of threads.
"""
