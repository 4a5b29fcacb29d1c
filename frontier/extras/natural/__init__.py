"""Natural prompts: passages of English prose."""
