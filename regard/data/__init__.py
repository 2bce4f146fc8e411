"""Files to batches: filters, a memory-mapped store, and an order that can be taken up anywhere. No torch here."""

from __future__ import annotations

from regard.data.batches import Batch, Batches, Layout
from regard.data.filters import Report
from regard.data.store import Store
from regard.settings.data import DataConfig, Filters, TestSet

__all__ = ["Batch", "Batches", "DataConfig", "Filters", "Layout", "Report", "Store", "TestSet"]
