"""What several tasks share: help texts."""

JSON = {"json": "print the result for machines"}
WHEEL = {"wheel": "wheel, directory or quoted pattern"}
