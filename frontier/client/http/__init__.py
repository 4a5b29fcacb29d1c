"""The hot path: requests out, stamped bytes in, and records made of them."""
