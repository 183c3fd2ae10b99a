"""Oracle values of network kernels, computed once with neural-tangents 0.6.5 on jax 0.5.3 in
float64.

    python -m venv oracle-env && oracle-env/bin/pip install jax==0.5.3 jaxlib==0.5.3
    neural-tangents==0.6.5 oracle-env/bin/python tests/oracle/make_oracle.py

neural-tangents is archived and breaks on current JAX, so it is no dependency; what it gave is
stored next to this file.
"""

import pathlib

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)
from neural_tangents import stax  # noqa: E402


def fully_connected():
    dense = stax.Dense(64, 1.0, 0.05)
    return stax.serial(dense, stax.Relu(), dense, stax.Relu(), dense)


def conv(size, stride=1, padding="SAME", w=1.0, b=0.05):
    return stax.Conv(16, (size, size), (stride, stride), padding, w, b)


def cnn():
    dense = stax.Dense(64, 1.0, 0.05)
    return stax.serial(
        conv(5), stax.Relu(), conv(5), stax.Relu(), stax.Flatten(), dense, stax.Relu(), dense
    )


def block(stride, project):
    main = stax.serial(stax.Relu(), conv(3, stride, b=0.0), stax.Relu(), conv(3, b=0.0))
    side = conv(3, stride, b=0.0) if project else stax.Identity()
    return stax.serial(stax.FanOut(2), stax.parallel(main, side), stax.FanInSum())


def resnet():
    groups = [piece for stride in (1, 2, 2, 2) for piece in (block(stride, True), block(1, False))]
    return stax.serial(conv(3, b=0.0), *groups, stax.Flatten(), stax.Dense(10, 1.0, 0.05))


def two_convolutions(first, second, readout):
    layers = conv(*first), stax.Relu(), conv(*second), stax.Relu()
    return stax.serial(*layers, stax.Flatten(), stax.Dense(8, *readout))


def make_pooled(depth):
    """Arora et al. (2019): the first convolution with variance 1, the others and the read-out with
    2, no bias."""
    layers = []
    for place in range(depth - 1):
        layers += [conv(3, w=1.0 if place == 0 else 2**0.5, b=0.0), stax.Relu()]
    return stax.serial(*layers, stax.GlobalAvgPool(), stax.Dense(10, 2**0.5, 0.0))


def pooled_strided():
    return stax.serial(
        conv(3, 2, "SAME", 1.3, 0.1),
        block(2, True),
        block(1, False),
        stax.Relu(),
        conv(2, 1, "VALID", 0.9, 0.2),
        stax.GlobalAvgPool(),
        stax.Dense(8, 1.5, 0.3),
    )


def store(name, inputs, cases):
    """Write the inputs, channels first, and both kernels of every case."""
    stored = {key: x.transpose(0, 3, 1, 2) if x.ndim == 4 else x for key, x in inputs.items()}
    for case, ((_, _, kernel), key) in cases.items():
        for kind in ("ntk", "nngp"):
            stored[f"{case}_{kind}"] = np.asarray(kernel(inputs[key], inputs[key], kind))
    np.savez_compressed(pathlib.Path(__file__).with_name(name), **stored)


def main():
    rng = np.random.default_rng(20)
    shapes = {"vectors": (6, 20), "gray": (5, 28, 28, 1)}
    shapes |= {"colour": (5, 32, 32, 3), "small": (5, 9, 11, 2)}
    inputs = {key: rng.normal(size=shape) for key, shape in shapes.items()}
    valid = two_convolutions((3, 2, "VALID", 1.3, 0.1), (2, 1, "VALID", 0.9, 0.2), (1.5, 0.3))
    even = two_convolutions((4, 2, "SAME", 1.2, 0.1), (4, 3, "SAME", 1.0, 0.0), (1.0, 0.1))
    cases = {
        "fully_connected": (fully_connected(), "vectors"),
        "cnn": (cnn(), "gray"),
        "resnet18": (resnet(), "colour"),
        "valid_strided": (valid, "small"),
        "even_window": (even, "small"),
    }
    store("kernels.npz", inputs, cases)
    rng = np.random.default_rng(21)
    shapes = {"colour": (3, 32, 32, 3), "small": (3, 9, 12, 2)}
    inputs = {key: rng.normal(size=shape) for key, shape in shapes.items()}
    cases = {"depth6": (make_pooled(6), "colour"), "strided": (pooled_strided(), "small")}
    store("pooled.npz", inputs, cases)


if __name__ == "__main__":
    main()
