"""Errors that a user can mend. Entry points print their text as one line and exit with code 1; nothing else is caught."""


class UserError(Exception):
    """Something a user can mend. The text is one line that says what is wrong, where, and how to mend it."""


class ConfigError(UserError):
    """An option has a value that cannot work.

    Args:
        option: name of the option as users write it.
        value: the value that was given.
        message: why it cannot work, with the legal values or the way out.
    """

    def __init__(self, option: str, value: object, message: str):
        super().__init__(f"{option} = {value!r}: {message}")
        self.option = option
        self.value = value
        self.reason = message
