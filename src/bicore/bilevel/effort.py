"""What refining takes when the points are there, known before any work is done."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """Memory and arithmetic beside those of growing.

    Parameters
    ----------
    held : int
        Columns of a float64 number for each point that are held at a time.
    listed : int
        Points of a shortlist: where no features say what they are, their columns are held twice.
    passes : float
        How often all pairs are gone through.
    products : float
        Columns that the kernel matrix is multiplied by, in all.
    multiplications : float
        In products of other matrices.
    pairs : float
        Of points of shortlists, each a product over the outer rows, or over features.
    reads : float
        Numbers that are read and written one by one.

    Examples
    --------
    >>> Effort(passes=3).held
    0
    """

    held: int = 0
    listed: int = 0
    passes: float = 0.0
    products: float = 0.0
    multiplications: float = 0.0
    pairs: float = 0.0
    reads: float = 0.0
