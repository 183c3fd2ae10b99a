"""Device, precision, memory, threads, time and progress of a computation."""

from bicore._deprecated import keep_old_names

keep_old_names(__name__)
