"""A TorchServe handler that says which process it is and how large torch's pools are."""

import json
import os

import torch


def handle(data, _context):
    if data is None:
        return None
    finite = bool(torch.isfinite(torch.ones(256, 256) @ torch.ones(256, 256)).all())
    pools = {"pool": torch.get_num_threads(), "interOp": torch.get_num_interop_threads()}
    return [json.dumps({"pid": os.getpid(), "finite": finite, **pools})] * len(data)
