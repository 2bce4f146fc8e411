"""Data sets fetched from their official addresses."""
