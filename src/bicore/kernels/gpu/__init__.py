"""Kernels in CUDA C++, compiled at run time by the compiler that ships with torch.

Nothing of it is imported where there is no GPU.
"""

from bicore.kernels.gpu.compiler import Argument, CompilerError, Function, function, source_of

__all__ = ["Argument", "CompilerError", "Function", "function", "source_of"]
