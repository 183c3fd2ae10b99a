"""Time neural-tangents on the same presets and images, to compare with our record. Not a
dependency:

    python -m venv peer && peer/bin/pip install jax==0.5.3 jaxlib==0.5.3 neural-tangents==0.6.5
    peer/bin/python benchmarks/neural_tangents_timing.py DIR

DIR holds MNIST/raw as torchvision lays it out. Each kernel is compiled first; the best of three
runs counts. The CNN preset runs on blocks of 100 × 100 images (the whole matrix, with the library's
own batching).
"""

import gzip
import json
import pathlib
import sys
import timeit

import jax
import neural_tangents as nt
import numpy as np
from neural_tangents import stax

COUNT = 1000


def images(folder):
    with gzip.open(pathlib.Path(folder) / "MNIST" / "raw" / "train-images-idx3-ubyte.gz") as file:
        raw = np.frombuffer(file.read(16 + 784 * COUNT), np.uint8, offset=16)
    return ((raw.reshape(COUNT, 28, 28, 1) / 255 - 0.1307) / 0.3081).astype(np.float32)


def best(work, repeats):
    work()
    return min(timeit.repeat(work, repeat=repeats, number=1))


def main():
    x = images(sys.argv[1])
    dense = stax.Dense(128, 1.0, 0.05)
    conv = stax.Conv(32, (5, 5), (1, 1), "SAME", 1.0, 0.05)
    flat = stax.serial(dense, stax.Relu(), dense, stax.Relu(), dense)[2]
    network = stax.serial(
        conv, stax.Relu(), conv, stax.Relu(), stax.Flatten(), dense, stax.Relu(), dense
    )[2]
    whole = jax.jit(lambda a: flat(a, a, "ntk"))
    vectors = x.reshape(COUNT, -1)
    batched = nt.batch(network, batch_size=100, store_on_device=False)
    seconds = {
        "fully connected": best(lambda: whole(vectors).block_until_ready(), 3),
        "cnn": best(lambda: np.asarray(batched(x, x, "ntk")), 1),
    }
    versions = {"neural_tangents": nt.__version__, "jax": jax.__version__}
    record = {"benchmark": "neural-tangents", "versions": versions, "seconds": seconds}
    record["command"] = "python benchmarks/neural_tangents_timing.py DIR"
    path = pathlib.Path(__file__).parent / "records" / "neural_tangents.json"
    path.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
