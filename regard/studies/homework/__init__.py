"""The homework kit: exercises from the lectures, checked by the project's laws, with words for what is wrong.

Nothing is imported here, so that the command line can know the command without what it computes with.
"""
