"""How a kernel reaches hardware, or does without."""
