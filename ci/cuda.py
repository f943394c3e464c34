#!/usr/bin/env python3
"""PyTorch with CUDA, plainly and under the preload: training with workers and pinned memory, memory of malloc that CUDA pins,
and a burst of small tensors. Both must compute the same. Status 3 without PyTorch or a GPU.

    ci/cuda.py [LIBRARY]      of `make library`
"""

import json
import os
import pathlib
import subprocess
import sys
import time

ROUNDS = 30
TENSORS = 400_000
KEPT = 500  # one of so many


def resident_mb():
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) // 1000


def train(torch):
    """Two epochs of a small network; the last loss."""
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(1)
    data = TensorDataset(torch.randn(20_000, 256), torch.randn(20_000, 1))
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1)).cuda()
    optimiser = torch.optim.SGD(model.parameters(), 1e-3)
    for _ in range(2):
        for x, y in DataLoader(data, batch_size=256, num_workers=4, pin_memory=True):
            loss = torch.nn.functional.mse_loss(model(x.cuda(non_blocking=True)), y.cuda(non_blocking=True))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return round(float(loss.detach()), 4)


class Pinned:
    """An array of malloc's memory that CUDA has pinned."""

    def __init__(self, torch, array):
        self.runtime, self.array = torch.cuda.cudart(), array
        assert int(self.runtime.cudaHostRegister(array.ctypes.data, array.nbytes, 0)) == 0

    def __enter__(self):
        return self.array

    def __exit__(self, *_):
        assert int(self.runtime.cudaHostUnregister(self.array.ctypes.data)) == 0


def wrong_copies(torch, numpy):
    """Copies by way of the GPU that differ: each round's array is pinned, copied, and freed."""
    wrong = 0
    for number in range(ROUNDS):
        with Pinned(torch, numpy.arange(4 << 20, dtype=numpy.int32) + number) as array:
            copy = torch.from_numpy(array).to("cuda", non_blocking=True).cpu()
            wrong += int((copy.numpy() != array).any())
    return wrong


def job():
    import numpy
    import torch

    found = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(), "loss": train(torch)}
    found["wrong copies"] = wrong_copies(torch, numpy)
    # This array stays pinned while most of what lies around it is freed and returned.
    with Pinned(torch, numpy.arange(16 << 20, dtype=numpy.int32)) as array:
        tensors = [torch.randn(n % 3000 + 1) for n in range(TENSORS)]
        found["peak MB"] = resident_mb()
        tensors = tensors[::KEPT]
        time.sleep(4)
        found["MB after"] = resident_mb()
        found["wrong copies"] += int((torch.from_numpy(array).cuda().cpu().numpy() != array).any())
    print(json.dumps(found))


def main():
    library = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "target/release/libebbmalloc.so").resolve()
    if not library.exists():
        sys.exit(f"cuda.py: {library} does not exist: `make library` builds it")
    probe = [sys.executable, "-c", "import numpy, torch; raise SystemExit(not torch.cuda.is_available())"]
    if subprocess.run(probe, capture_output=True).returncode:
        print("cuda.py: needs PyTorch, NumPy and a GPU that PyTorch can use", file=sys.stderr)
        sys.exit(3)
    results = []
    for preload in ("", str(library)):
        environment = os.environ | {"LD_PRELOAD": preload, "CUDA_PY_JOB": "1"}
        done = subprocess.run([sys.executable, __file__], env=environment, text=True, stdout=subprocess.PIPE)
        if done.returncode:
            sys.exit(f"cuda.py: ended with status {done.returncode} under {library if preload else 'the plain malloc'}")
        results.append(json.loads(done.stdout.splitlines()[-1]))
        print("ebbmalloc" if preload else "plain", results[-1])
    if results[0]["loss"] != results[1]["loss"] or any(result["wrong copies"] for result in results):
        sys.exit("cuda.py: the two runs differ, or copies are wrong")


if __name__ == "__main__":
    job() if os.environ.get("CUDA_PY_JOB") else main()
