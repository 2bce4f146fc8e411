"""The lectures as running code: each formula computed by the library's own functions, each figure drawn again.

Nothing is imported here, so that the command line can know the command without what it computes with.
"""
