"""Points, frontiers and decisions as pictures, tables and pages."""
