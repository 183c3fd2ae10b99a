"""Real data sets, judges that differ, all variants: what the defaults were chosen by, and shown on."""
