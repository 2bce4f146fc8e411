"""Files to batches: filters, a memory-mapped store, and an order that can be taken up anywhere. No torch here."""

from __future__ import annotations

from regard.data.batches import Batch, Batches, Layout
from regard.data.config import DataConfig, TestSet
from regard.data.filters import Filters, Report
from regard.data.store import Store

__all__ = ["Batch", "Batches", "DataConfig", "Filters", "Layout", "Report", "Store", "TestSet"]
