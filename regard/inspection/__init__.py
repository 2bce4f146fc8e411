"""What a bundle is and whether it still does what it did; what a machine offers, and what translates there."""
