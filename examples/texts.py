"""Which texts to label: a first round without labels, then rounds with the labels so far.

python examples/texts.py [TEXTS.csv EMBEDDING.npy COLUMN]

COLUMN holds the labels that people would give; without files, questions to a shop are made up.
"""

import csv
import sys

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

import bicore
from bicore.active import query_by_variance

SIZE, ROUNDS, TEST = 20, 4, 0.25  # texts of a round, rounds, share of texts to test on
WORDS = {
    "delivery": "parcel package courier delivery late tracking address driver",
    "refund": "refund money return back charged twice receipt cancel",
    "account": "password login account email locked code reset username",
    "product": "size colour broken battery manual screen spare warranty",
    "payment": "card invoice declined bank transfer voucher price tax",
}
COMMON = "please hello I my the is not can you what when help order still question"


def make_texts(count: int = 1200) -> tuple[list[str], np.ndarray]:
    """Make up texts: two words of a topic, and any six; some topics are rare."""
    rng, other = np.random.default_rng(0), " ".join([*WORDS.values(), *9 * [COMMON]]).split()
    topics = rng.choice(list(WORDS), count, p=[0.5, 0.25, 0.15, 0.06, 0.04])
    words = [[*rng.choice(WORDS[one].split(), 2), *rng.choice(other, 6)] for one in topics]
    return list(map(" ".join, words)), topics


if len(sys.argv) > 1:
    _, path, embedding, column = sys.argv
    with open(path, newline="", encoding="utf-8") as file:
        x, labels = np.load(embedding), np.array([row[column] for row in csv.DictReader(file)])
else:
    texts, labels = make_texts()
    x = TruncatedSVD(50, random_state=0).fit_transform(TfidfVectorizer().fit_transform(texts))
test, pool = np.split(np.random.default_rng(0).permutation(len(x)), [int(TEST * len(x))])


def accuracy(rows: np.ndarray) -> float:
    """Train on the labels of some texts and test on held-out ones."""
    return LogisticRegression(C=10).fit(x[rows], labels[rows]).score(x[test], labels[test])


known = pool[bicore.select(x[pool], size=SIZE).indices]  # no labels yet
for _ in range(ROUNDS):
    drawn = [np.random.default_rng(k).permutation(pool)[: len(known)] for k in range(5)]
    random = np.mean([accuracy(rows) for rows in drawn])
    print(f"{len(known)} texts labelled: accuracy {accuracy(known):.3f}, random {random:.3f}")
    rest = np.setdiff1d(pool, known)
    batch = query_by_variance(x[known], labels[known], x[rest], SIZE).indices
    known = np.append(known, rest[batch])
