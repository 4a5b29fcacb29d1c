"""The load clients people use today, beside ours, against one server whose truth is known."""
