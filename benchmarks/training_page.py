"""The section of a training step, from its record."""

from __future__ import annotations

from typing import Any

from benchmarks.common import table, told


def section(record: dict[str, Any]) -> str:
    ceilings = record["ceilings"]
    work = record["work"]
    floor = record["floor_seconds"]
    body = [
        [
            row["setting"],
            f"{1e3 * row['seconds_a_step']:.2f} ms",
            f"{row['times_the_floor']:.1f}" if "times_the_floor" in row else "",
        ]
        for row in record["rows"]
    ]
    bytes_floor = work["bytes"] / ceilings["bytes_a_second"]
    return f"""## A step of training with rehearsal

{told(record)}

ResNet-18 without normalisation on {record["images"]} images, a batch of 256 and a memory of 200, with random crops and mirror
images, the optimiser's step included; seconds a network, least of several. The card's own ceilings, measured first:
{ceilings["operations_a_second"] / 1e12:.0f} TFLOP/s of bfloat16 products, {ceilings["bytes_a_second"] / 1e12:.2f} TB/s of memory.
A step computes {work["operations"] / 1e12:.2f} TFLOP and moves at least {work["bytes"] / 1e9:.1f} GB of maps
({1e3 * bytes_floor:.2f} ms), so that its floor is {1e3 * floor:.2f} ms.

{table(["setting", "a step", "times the floor"], body)}"""
