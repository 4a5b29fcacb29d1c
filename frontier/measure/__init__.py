"""Drive a server in a closed loop and record what it did, with its own conduct watched."""
