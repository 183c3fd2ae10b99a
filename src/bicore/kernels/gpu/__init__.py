"""Kernels in CUDA C++, compiled at run time by the compiler that ships with torch; imported only
where there is a GPU."""

from bicore.kernels.gpu.compiler import CompilerError, Function, function, source_of

__all__ = ["CompilerError", "Function", "function", "source_of"]
