"""Corpora to batches: formats, filters, a memory-mapped store, and an order that can be taken up anywhere. No torch."""
