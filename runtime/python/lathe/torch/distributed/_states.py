"""Linear attention over several ranks."""


def refusal(op, s) -> str:
    return "not there yet"
