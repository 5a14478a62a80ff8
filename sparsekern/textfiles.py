"""Text files that people name: errors name the file and the rule, and a file is written whole or not."""

import csv
import os
from contextlib import contextmanager
from pathlib import Path


def read_text(path, what, error=ValueError):
    """The text of a UTF-8 file, without a byte-order mark, every line ending in "\\n".

    what: what the file should be, for the message of `error`, which is raised if there is no file at `path`,
    or a folder, or one that cannot be read or is not UTF-8.
    """
    path = Path(path)
    try:
        if path.is_dir():
            raise error(f"{path} is no {what}: it is a folder; it must be a text file")
        if path.exists() and not path.is_file():
            raise error(f"{path} is no {what}: it is a device or a pipe; it must be a text file")
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise error(f"{path} is no {what}: there is no file of that name") from None
    except OSError as refusal:
        raise error(f"{path} is no {what}: it cannot be read ({refusal.strerror})") from None
    except UnicodeDecodeError as found:
        at = found.start
        raise error(
            f"{path} is no {what}: it must be text in UTF-8, and byte {at}, {found.object[at]:#04x}, is not"
        ) from None


def write_text(path, text):
    """Writes UTF-8 to `path`, which is there whole or, after an OSError, as it was before.

    A device or a pipe is written to, and not replaced.
    """
    path = Path(path).resolve()
    if path.exists() and not (path.is_file() or path.is_dir()):
        path.write_text(text, encoding="utf-8", newline="\n")
        return
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8", newline="\n")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def parsing(path, error=ValueError):
    """A `with` block that reads the CSV of `path`: what `csv` cannot read becomes `error`, which names it."""
    try:
        yield
    except csv.Error as refusal:
        raise error(f"{path} cannot be read as CSV: {refusal}") from None


@contextmanager
def writing(path, error=ValueError):
    """A `with` block that writes to `path`: an OSError in it becomes `error`, which names the file."""
    try:
        yield
    except OSError as refusal:
        at = f" of {refusal.filename}" if refusal.filename not in (None, str(path)) else ""
        raise error(f"{path} cannot be written: {refusal.strerror}{at}") from None
