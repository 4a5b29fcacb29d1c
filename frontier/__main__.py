"""`python -m frontier`."""

from frontier.cli.main import main

if __name__ == "__main__":
    main()
