"""Commands about results: pages, tables, comparisons, logs of others."""
