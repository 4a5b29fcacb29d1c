"""The frontier picture, drawn with matplotlib: figure data, words, layout."""
