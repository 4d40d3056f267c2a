"""Builds the native shim: `python -m native build`."""
