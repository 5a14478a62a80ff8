"""How a kernel is studied."""
