"""The load client: HTTP requests, streams read and stamped, closed and open loop."""
