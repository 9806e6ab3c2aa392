"""Where the times of a row are from."""

# Timing sources: of our own runs, and of numbers that others published.
MEASURED, PUBLISHED = "dlbench", "published"
