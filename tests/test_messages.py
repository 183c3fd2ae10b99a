"""Error messages in full: argument, value, what is allowed, how to fix it.

The wording of all other messages is free: their tests look at the class and the argument's name.
"""

import numpy as np
import pytest
import torch
from scipy import sparse

from bicore import Coreset, InputError, Runtime, compare, influence, select, worth
from bicore.bilevel import Adam
from bicore.errors import check_integer, check_number, check_type
from bicore.methods import Herding, Uniform
from bicore.methods.registry import build_selector
from bicore.sources.opening import open_shards
from bicore.streaming import MomentMemory, VariationalLearner
from tests.helpers import blobs

X, Y = blobs().x, blobs().y
HOLED = np.where(np.arange(40)[:, None] == 3, np.nan, X)
WEIGHT = np.r_[-1.0, np.ones(39)]


def call(x=X, y=Y, size=3, **options):
    return lambda: select(x, y, size, **options)


MESSAGES = {
    "size must be between 1 and 40 (the number of rows that can be selected), or a fraction such "
    "as 0.05; got 41.": call(size=41),
    "x holds nan at row 3, column 0; impute the value or drop the row.": call(HOLED),
    "y has 39 rows and x has 40; give one value per row of x.": call(y=Y[:-1]),
    "y holds a single class (0); two are needed (or give classes=…, or task='regression' for "
    "numbers).": call(y=0 * Y),
    "outer: y has 2 rows and x has 3; give one value per row of x.": call(outer=(X[:3], Y[:2])),
    "indices holds True; give integer row numbers (for a mask: np.flatnonzero(mask)).": lambda: (
        Coreset(np.array([True, False]))
    ),
    "table must have rows; got 3.": lambda: Coreset(np.array([0])).select(3),
    "sizes is empty; give at least one, or leave it out.": lambda: compare(X, Y, []),
    "y is sparse, and only x may be; pass y.toarray() if it fits.": call(
        y=sparse.csr_array(np.eye(40))
    ),
    "task='regress' is not known; use one of 'auto', 'classification', 'regression'. Did you "
    "mean 'regression'?": call(task="regress"),
    "select() has no argument 'kernal'. Did you mean 'kernel'?": call(kernal="rbf"),
    "rule='gain' needs the squared error, a constant inner_reg, uniform or final weighting "
    "and the built-in solver; otherwise use rule='gradient'.": call(
        rule="gain", loss="cross-entropy"
    ),
    "initial holds row 40, outside 0 … 39; rows are counted from 0.": call(initial=[40]),
    "sample_weight[0] = -1.0 is negative; drop the row or set it to 0.": call(sample_weight=WEIGHT),
    "random_state must be an integer >= 0, or a NumPy generator; got -1.": call(random_state=-1),
    "prior='equal' needs class labels, and y holds numeric targets; leave it out.": call(
        y=X[:, 0], prior="equal"
    ),
    "tolerance=0.1 needs size='auto', but size is 3; set size='auto' or leave tolerance out.": call(
        tolerance=0.1
    ),
    "the Gram matrix is not positive semi-definite: its smallest eigenvalue is -50; use a kernel "
    "that is, or add that much to the diagonal.": call(
        X @ X.T - 50 * np.eye(40), kernel="precomputed"
    ),
    "method='uniform' has no options; leave kernel out.": lambda: build_selector(
        "uniform", kernel="rbf"
    ),
    "memory must be a number of bytes above 0 or a size such as '4GB'; got 'lots'.": lambda: (
        Runtime(memory="lots")
    ),
    "capacity must be an integer >= 1; got 0.": lambda: MomentMemory(0),
    "source: none.npy does not exist; check the name of the file.": lambda: open_shards("none.npy"),
    "share must be a number between 0 and 1, or 'auto'; got 2.5.": lambda: check_number(
        "share", 2.5, least=0, most=1, fix="or 'auto'"
    ),
    "noise must be a number > 0; got -1.": lambda: check_number("noise", -1, above=0),
    "folds must be an integer >= 2; got True.": lambda: check_integer("folds", True, 2),
    "stream must be a Stream, as in Stream(capacity=50); got True.": lambda: compare(
        X, Y, stream=True
    ),
    "chosen must be an integer between 1 and 40, a fraction such as 0.05, or a coreset; got "
    "'many'.": lambda: worth(X, Y, "many"),
    "model must be a name; got 3.": lambda: check_type("model", 3, str, "a name"),
    "judge is empty; give at least one, or leave it out.": lambda: compare(X, Y, [5], judge=[]),
    "coreset must be a Coreset or row numbers; got 5.": lambda: influence(X, Y, 5),
    "data must be a Dataset, as in bicore.Dataset(x, y); got a ndarray.": lambda: Uniform().select(
        X, 5
    ),
    "path must be a file or folder name; got 5.": lambda: Coreset(np.array([0])).save(5),
    "steps must be an integer >= 1; got -7.": lambda: Adam(steps=-7),
    "prior_std must be a number > 0; got -1.": lambda: VariationalLearner(
        [3, 2], Uniform(), prior_std=-1
    ),
    "normalise must be True or False; got 'no'.": lambda: Herding(normalise="no"),
    "x is a sparse tensor; give x.to_dense(), or a SciPy matrix as x.": lambda: select(
        torch.eye(9).to_sparse(), Y, 5
    ),
}


@pytest.mark.parametrize("message", MESSAGES)
def test_messages_in_full(message):
    with pytest.raises(InputError) as error:
        MESSAGES[message]()
    assert str(error.value) == message
