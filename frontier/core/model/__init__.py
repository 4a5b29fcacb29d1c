"""What is measured, and in which words: shapes, loads, trials, metrics, points, decisions."""
