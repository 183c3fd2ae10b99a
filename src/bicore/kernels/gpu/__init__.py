"""Kernels in CUDA C++, compiled at run time by the compiler that ships with torch.

It is imported only if there is a GPU.
"""
