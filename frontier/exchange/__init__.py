"""Foreign formats: importers that join at Record or Point, and exporters. One file per format; what they share:

`documents` bytes to a bounded tree or table, `found` what an importer says, `assemble` what it becomes in our words:
deployments by `naming`, shapes by `grouping`, aggregates by `points`, requests with their times by `traces`.
"""
