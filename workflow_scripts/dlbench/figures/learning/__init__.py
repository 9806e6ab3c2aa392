"""What is learned, and how long it takes."""
