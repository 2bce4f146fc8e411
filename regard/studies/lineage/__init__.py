"""The lineage compared: families trained alike, and what their figures say.

Nothing is imported here, so that the command line can know the command without what it computes with.
"""
