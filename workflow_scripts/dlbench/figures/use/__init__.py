"""What runs use of time, memory, energy and the device's peak."""
