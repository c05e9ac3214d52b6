"""What several tasks share: help texts, numbers."""

from rocm_wheels.errors import UsageError

JSON = {"json": "print the result for machines"}
WHEEL = {"wheel": "wheel, directory or quoted pattern"}


def whole_number(text: str, option: str) -> int:
    """The number that an option was given; invoke's own reading of one ends in a traceback."""
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"--{option} {text!r} is not a whole number") from None
