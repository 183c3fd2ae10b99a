"""Speed, memory and the ablation behind the defaults. Run with ``python -m benchmarks NAME
[--json]``."""
