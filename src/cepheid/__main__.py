"""`python -m cepheid` is the command line."""

from cepheid.app.cli import main

if __name__ == "__main__":
    main()
