"""Formulas that are the same on the host and on a card: NumPy arrays here, tensors there.

What is written with ``@``, ``*``, ``+=`` and indices runs on both; the few words that differ are
here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def placed(array: Any, device: torch.device | None) -> Any:
    """Numbers in float64 where they are worked on.

    Parameters
    ----------
    array : array
        On the host.
    device : torch.device, optional
        None: it stays an array.

    Returns
    -------
    array or Tensor
        A copy of its own on a device.

    Examples
    --------
    >>> placed(np.ones(2), torch.device("cpu"))
    tensor([1., 1.], dtype=torch.float64)
    """
    if device is None:
        return np.asarray(array, dtype=np.float64)
    return torch.tensor(np.asarray(array), dtype=torch.float64, device=device)


def on_host(numbers: Any) -> Any:
    """The same as an array.

    Parameters
    ----------
    numbers : array or Tensor
        Wherever they are.

    Returns
    -------
    array
        On the host.

    Examples
    --------
    >>> on_host(torch.ones(2))
    array([1., 1.], dtype=float32)
    """
    return numbers.cpu().numpy() if torch.is_tensor(numbers) else np.asarray(numbers)


def along(a: Any, b: Any) -> Any:
    """Products of rows with rows.

    Parameters
    ----------
    a, b : array or Tensor (n, p)
        Both of one kind.

    Returns
    -------
    array or Tensor (n,)
        One number a row.

    Examples
    --------
    >>> along(np.ones((2, 3)), np.ones((2, 3)))
    array([3., 3.])
    """
    return (a * b).sum(1) if torch.is_tensor(a) else np.einsum("ij,ij->i", a, b)


def outer(a: Any, b: Any) -> Any:
    """A matrix of rank one.

    Parameters
    ----------
    a, b : array or Tensor (n,), (p,)
        Both of one kind.

    Returns
    -------
    array or Tensor (n, p)
        Every product.

    Examples
    --------
    >>> outer(np.ones(2), np.arange(2.0))
    array([[0., 1.],
           [0., 1.]])
    """
    return a[:, None] * b[None, :]
