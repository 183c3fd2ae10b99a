"""Select images of a folder for your own network, by its kernel or by its embedding.

python examples/images.py [FOLDER [OUT]]

FOLDER has a subfolder of images for each class; without it, digits are written to a new one.
Replace ``make_network`` by your own.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

import bicore
from bicore.errors import BicoreError
from bicore.kernels import from_module
from bicore.sources import digits
from bicore.sources.images import copy_images, load_images

#: Selected images, the share of held-out images, and trainings per selection.
SIZE, TEST, REPEATS = 40, 0.25, 5


def make_network(channels: int, classes: int) -> nn.Module:
    """A small convolutional network."""
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(classes),
    )


def write_digits(folder: Path, count: int = 400) -> Path:
    """Write images of digits into class folders."""
    from PIL import Image

    x, y = digits()
    for number, (pixels, label) in enumerate(zip(x[:count], y[:count], strict=True)):
        (folder / str(label)).mkdir(parents=True, exist_ok=True)
        image = Image.fromarray((255 * pixels.reshape(8, 8) / x.max()).astype(np.uint8))
        image.save(folder / str(label) / f"{number}.png")
    return folder


def train(network: nn.Module, x: np.ndarray, codes: np.ndarray, steps: int = 150) -> None:
    """Train a network on all rows given."""
    images, labels = torch.from_numpy(x).float(), torch.from_numpy(codes)
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(images), labels).backward()
        optimiser.step()


torch.manual_seed(0)
place = Path(tempfile.mkdtemp())
folder = Path(sys.argv[1]) if len(sys.argv) > 1 else write_digits(place / "images")
out = Path(sys.argv[2]) if len(sys.argv) > 2 else place / "chosen"
try:
    source = load_images(folder).scale_features(None)
except (OSError, BicoreError) as error:
    raise SystemExit(f"{error}") from None
if source.data.y is None:
    raise SystemExit(f"{folder} has no subfolder for each class.")
x, (classes, codes) = source.data.x, np.unique(source.data.y, return_inverse=True)
network = make_network(x.shape[1], len(classes))
try:
    network(torch.from_numpy(x[:1]).float())  # sets the width of the last layer
except RuntimeError as error:
    raise SystemExit(f"images of shape {x.shape[1:]} do not fit the network: {error}") from None
order = np.random.default_rng(0).permutation(len(x))
test, pool = np.split(order, [int(TEST * len(x))])
if len(pool) <= SIZE:
    raise SystemExit(f"{folder} has {len(x)} images; set SIZE below {len(pool)}.")

# By the kernel of the network at initialisation: nothing is trained. For small images on a CPU.
chosen = pool[bicore.select(x[pool], codes[pool], SIZE, kernel=from_module(network)).indices]

# By the embedding of a trained network: the rows that train a new head on it.
# embed = nn.Sequential(*list(network)[:-1]); bicore.select(embed(images).detach(), codes, SIZE)

copy_images(source, chosen, out)
results: dict[str, list[float]] = {"selected": [], "random": []}
for seed in range(REPEATS):
    drawn = np.random.default_rng(seed).permutation(pool)[:SIZE]
    for name, rows in (("selected", chosen), ("random", drawn)):
        torch.manual_seed(seed)
        fresh = make_network(x.shape[1], len(classes))
        train(fresh, x[rows], codes[rows])
        with torch.no_grad():
            found = fresh(torch.from_numpy(x[test]).float()).argmax(1).numpy()
        results[name].append((found == codes[test]).mean())
for name, scores in results.items():
    words = f"trained on {SIZE} {name} images: accuracy on {len(test)} held-out images"
    print(f"{words} {np.mean(scores):.3f}, mean of {REPEATS} runs")
print(f"{SIZE} images are in {out}")
