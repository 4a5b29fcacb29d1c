"""Other tools' files: importers, one file each, and exports."""
