"""What figures share: series of runs, styles, charts."""
