"""`python -m noise2text`."""

from noise2text.cli import main

if __name__ == "__main__":
    main()
