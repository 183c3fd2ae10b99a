"""The outer objective as sums over rows, for streams, shards and clusters."""

from bicore._deprecated import keep_old_names

keep_old_names(__name__)
