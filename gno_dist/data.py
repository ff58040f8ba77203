"""Where the shipped fixtures and schemas lie: in a checkout its folders, in a wheel ``_data``."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_folder(name: str) -> Path:
    """The folder ``fixtures`` or ``schemas``, whichever way the package was installed."""
    packaged = _PACKAGE / "_data" / name
    return packaged if packaged.is_dir() else _PACKAGE.parent / name
