"""Two sides of one comparison."""
