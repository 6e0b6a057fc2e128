"""Prints its arguments: the smallest trainer there is."""

import sys


def main() -> None:
    print("Hello from Python", sys.version.split()[0])
    for number, argument in enumerate(sys.argv[1:], 1):
        print(f"argument {number}: {argument}")


if __name__ == "__main__":
    main()
