"""Training made visible: a run's curves, and what each of its checkpoints makes of a few sentences.

from regard.watch.report import report

report(["runs/first"], "report.html")
"""
