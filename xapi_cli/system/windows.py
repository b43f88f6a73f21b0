"""What Windows provides in place of POSIX: consoles, command lines, access control lists and locks of open files.

Functions whose rules are text only can be used on every system.
"""

import errno
import ntpath
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")
_BATCH_FILES = (".bat", ".cmd")
_DEFAULT_EXTENSIONS = ".COM;.EXE;.BAT;.CMD"  # as the default of PATHEXT begins
_RESERVED = re.compile(
    r"(?:con|prn|aux|conin\$|conout\$|(?:com|lpt)[1-9\u00b9\u00b2\u00b3])(?:[ .:].*)?", re.IGNORECASE
)
_MAX_DIRECTORY = 248  # characters of the path of a directory, without the special form
_RETRY_TIMEOUT, _RETRY_INTERVAL = 2.0, 0.02  # seconds


def program_places(program: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths at which the program with the name *program* may be, by PATH and PATHEXT.

    Unlike the search of Windows, this one does not begin in the current directory, and skips relative directories.
    """
    extensions = [each for each in environ.get("PATHEXT", _DEFAULT_EXTENSIONS).split(";") if each.startswith(".")]
    names = [program + each for each in extensions]
    if ntpath.splitext(program)[1].lower() in {each.lower() for each in extensions}:
        names.insert(0, program)
    for place in environ.get("PATH", "").split(";"):
        directory = place.strip('"')
        if ntpath.splitdrive(directory)[0] and ntpath.isabs(directory):
            for name in names:
                yield ntpath.join(directory, name)


def command_line(command: Sequence[str]) -> str | Sequence[str]:
    """Return what `subprocess` is to run for *command*.

    A batch file is run by cmd.exe, which has its own syntax (CVE-2024-24576): all its arguments are quoted. Raises
    OSError for an argument that cannot be quoted for it.
    """
    if not command[0].lower().rstrip(" .").endswith(_BATCH_FILES):
        return command
    for argument in command[1:]:
        if set(argument) & set('"%\r\n\0'):
            raise OSError(errno.EINVAL, "a batch file cannot get an argument with a quote, a percent sign or a newline")
    return " ".join(f'"{_with_doubled_end(word)}"' for word in command)


def _with_doubled_end(word: str) -> str:
    """Return *word* with the backslashes at its end doubled: the quote after them is not escaped then."""
    return word + "\\" * (len(word) - len(word.rstrip("\\")))


def split_command(text: str) -> list[str]:
    """Return the arguments in *text* by the rules of Microsoft's C runtime; raises ValueError for an unclosed quote.

    Backslashes are literal, except before a quote. Two quotes within quotes are one (Microsoft Learn, "Parsing C
    command-line arguments").
    """
    arguments: list[str] = []
    position, end = 0, len(text)
    while (position := _after_blanks(text, position)) < end:
        word, is_quoted = "", False
        while position < end and (is_quoted or text[position] not in " \t\r\n"):
            match = re.compile(r'(\\*)(")?').match(text, position)
            slashes, quote = (match[1], match[2]) if match else ("", None)
            position += len(slashes)
            if quote is None:
                word += slashes or text[position]
                position += not slashes
                continue
            word += "\\" * (len(slashes) // 2)
            position += 1
            if len(slashes) % 2:
                word += '"'
            elif is_quoted and text[position : position + 1] == '"':
                word += '"'
                position += 1
            else:
                is_quoted = not is_quoted
        if is_quoted:
            raise ValueError("No closing quotation")
        arguments.append(word)
    return arguments


def _after_blanks(text: str, position: int) -> int:
    return len(text) - len(text[position:].lstrip(" \t\r\n"))


def is_reserved(path: str) -> bool:
    """Return whether the last component of *path* is the name of a device, except NUL, even with an extension."""
    return _RESERVED.fullmatch(ntpath.basename(path).strip()) is not None


def extended(path: str) -> str:
    r"""Return the absolute *path* in the form without a limit if it is longer than Windows otherwise accepts.

    The limit is 260 characters with a final zero, and 12 less for a directory ("Maximum Path Length Limitation").
    A path that begins with \\?\ is left as it is.
    """
    if len(path) < _MAX_DIRECTORY or path.startswith("\\\\?\\"):
        return path
    return "\\\\?\\UNC" + path[1:] if path.startswith("\\\\") else "\\\\?\\" + path


def retried(action: Callable[[], _T]) -> _T:
    """Return the result of *action*; repeat it while Windows refuses it because another process uses the file.

    It raises PermissionError both for that and for missing permissions, so the latter are reported after two seconds.
    """
    end = time.monotonic() + _RETRY_TIMEOUT
    while True:
        with suppress(PermissionError):
            return action()
        if time.monotonic() > end:
            return action()
        time.sleep(_RETRY_INTERVAL)


if sys.platform == "win32":
    import ctypes
    import msvcrt
    from ctypes import wintypes
    from io import FileIO

    _ENABLE_VIRTUAL_TERMINAL_PROCESSING = 0x4
    _TOKEN_QUERY, _TOKEN_USER = 0x8, 1
    _DACL, _PROTECTED_DACL = 0x4, 0x80000000  # of SECURITY_INFORMATION
    _SDDL_REVISION_1 = 1
    _THREAD_TERMINATE = 0x1  # what CancelSynchronousIo requires
    _LOCKED_OFFSET = 2**31 - 16  # Windows denies other processes the access to locked bytes, so not at the beginning

    _kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
    _kernel32.GetCurrentProcess.restype = wintypes.HANDLE
    _kernel32.OpenThread.restype = wintypes.HANDLE
    _kernel32.LocalFree.argtypes = (ctypes.c_void_p,)

    @cache
    def is_console(descriptor: int) -> bool:
        """Return whether the open file is a console; NUL is none, although `isatty` is true for it."""
        return _mode(descriptor) is not None

    @cache
    def enable_escape_codes(descriptor: int) -> bool:
        """Make the console interpret escape codes; return whether it does (Windows 10 1511 and later)."""
        mode = _mode(descriptor)
        if mode is None:
            return False
        changed = mode | _ENABLE_VIRTUAL_TERMINAL_PROCESSING
        return bool(_kernel32.SetConsoleMode(wintypes.HANDLE(msvcrt.get_osfhandle(descriptor)), changed))

    def _mode(descriptor: int) -> int | None:
        mode = wintypes.DWORD()
        try:
            handle = wintypes.HANDLE(msvcrt.get_osfhandle(descriptor))
        except OSError:
            return None
        return mode.value if _kernel32.GetConsoleMode(handle, ctypes.byref(mode)) else None

    def cancel_io(thread: int) -> None:
        """Make a read or write return in which *thread*, a native identifier, waits; it fails there."""
        if handle := _kernel32.OpenThread(_THREAD_TERMINATE, False, thread):
            _kernel32.CancelSynchronousIo(wintypes.HANDLE(handle))
            _kernel32.CloseHandle(wintypes.HANDLE(handle))

    @cache
    def console_writer(descriptor: int) -> FileIO | None:
        """Return a stream that shows UTF-8 on the console, whatever its code page is; None if it is no console."""
        if not is_console(descriptor):
            return None
        return open(descriptor, "wb", buffering=0, closefd=False)  # its class converts to UTF-16

    def read_hidden(question: str) -> str:
        """Return what the user types on the console after *question*, without echo.

        Raises EOFError for Ctrl-Z, KeyboardInterrupt for Ctrl-C.
        """
        _show(question)
        typed = ""
        while (key := msvcrt.getwch()) not in "\r\n":
            if key == "\x03":
                raise KeyboardInterrupt
            if key == "\x1a" and not typed:
                raise EOFError
            if key in "\0\xe0":  # a key without a character; its number follows
                msvcrt.getwch()
            else:
                typed = typed[:-1] if key == "\b" else typed + key
        _show("\r\n")
        return typed.encode("utf-16", "surrogatepass").decode("utf-16")

    def _show(text: str) -> None:
        for character in text:
            msvcrt.putwch(character)

    def restrict(path: Path, *, is_directory: bool = False) -> None:
        """Let only the user, administrators and the system access *path*; files in a directory inherit that.

        A file system without access control lists, such as FAT, is left as it is.
        """
        flags = "OICI" if is_directory else ""
        entries = "".join(f"(A;{flags};FA;;;{who})" for who in (_own_sid(), "BA", "SY"))
        advapi32 = ctypes.WinDLL("advapi32", use_last_error=True)
        descriptor = ctypes.c_void_p()
        convert = advapi32.ConvertStringSecurityDescriptorToSecurityDescriptorW
        if convert(f"D:P{entries}", _SDDL_REVISION_1, ctypes.byref(descriptor), None):
            advapi32.SetFileSecurityW(str(path), wintypes.DWORD(_DACL | _PROTECTED_DACL), descriptor)
            _kernel32.LocalFree(descriptor)

    @cache
    def _own_sid() -> str:
        """Return the security identifier of the user of this process, as text."""
        advapi32 = ctypes.WinDLL("advapi32", use_last_error=True)
        token, size, text = wintypes.HANDLE(), wintypes.DWORD(), wintypes.LPWSTR()
        process = wintypes.HANDLE(_kernel32.GetCurrentProcess())
        if not advapi32.OpenProcessToken(process, _TOKEN_QUERY, ctypes.byref(token)):
            raise ctypes.WinError(ctypes.get_last_error())
        try:
            advapi32.GetTokenInformation(token, _TOKEN_USER, None, 0, ctypes.byref(size))
            user = ctypes.create_string_buffer(size.value)
            if not advapi32.GetTokenInformation(token, _TOKEN_USER, user, size, ctypes.byref(size)):
                raise ctypes.WinError(ctypes.get_last_error())
            sid = ctypes.cast(user, ctypes.POINTER(ctypes.c_void_p))[0]  # the first field of TOKEN_USER
            if not advapi32.ConvertSidToStringSidW(ctypes.c_void_p(sid), ctypes.byref(text)):
                raise ctypes.WinError(ctypes.get_last_error())
            try:
                return text.value or ""
            finally:
                _kernel32.LocalFree(text)
        finally:
            _kernel32.CloseHandle(token)

    def lock(descriptor: int) -> None:
        """Lock the open file without waiting; raises BlockingIOError if another process has locked it."""
        position = os.lseek(descriptor, 0, os.SEEK_CUR)
        try:
            os.lseek(descriptor, _LOCKED_OFFSET, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error
        finally:
            os.lseek(descriptor, position, os.SEEK_SET)
