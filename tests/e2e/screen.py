# SPDX-License-Identifier: Apache-2.0
"""A terminal for tests of programs that draw on one: a pty, and as much of an xterm as ncurses uses.

    with Terminal(24, 80, ["expertctl", "top"]) as t:
        t.expect("hit rate")        # waits until some line of the screen matches, else fails
        t.type("q")
        t.expect_end(0)             # waits for its end; status and terminal are checked
"""
import fcntl
import os
import re
import select
import signal
import struct
import sys
import termios
import time

PATIENCE = 20.0


class Screen:
    """Rows of characters, and what the escape sequences say about them."""

    def __init__(self, rows, cols):
        self.alternate = self.seen_alternate = self.coloured = False
        self.cursor = True
        self.unknown = set()
        self.rest = ""
        self.last = " "
        self.resize(rows, cols)

    def resize(self, rows, cols):
        self.rows, self.cols = rows, cols
        self.grid = [[" "] * cols for _ in range(rows)]
        self.y = self.x = 0
        self.top, self.bottom = 0, rows - 1

    def lines(self):
        return ["".join(row).rstrip() for row in self.grid]

    def put(self, char):
        if self.x >= self.cols:
            self.x, self.y = 0, min(self.y + 1, self.rows - 1)
        self.grid[self.y][self.x] = char
        self.x += 1
        self.last = char

    def scroll(self, at, lines):
        """Up by so many lines from row `at` to the region's end; down if negative."""
        for _ in range(abs(lines)):
            del self.grid[at if lines > 0 else self.bottom]
            self.grid.insert(self.bottom if lines > 0 else at, [" "] * self.cols)

    def erase(self, how, start, here, end):
        """Cells of the flat index start..end: from here on, up to here, or all."""
        first, last = [(here, end), (start, here + 1), (start, end)][how]
        for i in range(first, last):
            self.grid[i // self.cols][i % self.cols] = " "

    def control(self, private, text, final):
        args = [int(a) if a else 0 for a in text.split(";")] if text else []
        first = args[0] if args else 0
        n = max(1, first)
        here = self.y * self.cols + min(self.x, self.cols - 1)
        row = self.grid[self.y]
        if private == "?" and final in "hl":
            for mode in args:
                if mode == 1049:
                    self.alternate = final == "h"
                    self.seen_alternate |= self.alternate
                elif mode == 25:
                    self.cursor = final == "h"
        elif private:
            self.unknown.add(private + text + final)
        elif final == "H":
            self.y = min(self.rows, n) - 1
            self.x = min(self.cols, max(1, args[1] if len(args) > 1 else 1)) - 1
        elif final == "d":
            self.y = min(self.rows, n) - 1
        elif final == "G":
            self.x = min(self.cols, n) - 1
        elif final == "A":
            self.y = max(0, self.y - n)
        elif final == "B":
            self.y = min(self.rows - 1, self.y + n)
        elif final == "C":
            self.x = min(self.cols - 1, self.x + n)
        elif final == "D":
            self.x = max(0, self.x - n)
        elif final == "J":
            self.erase(first, 0, here, self.rows * self.cols)
        elif final == "K":
            self.erase(first, self.y * self.cols, here, (self.y + 1) * self.cols)
        elif final == "X":
            row[self.x:self.x + n] = [" "] * min(n, self.cols - self.x)
        elif final == "P":
            self.grid[self.y] = (row[:self.x] + row[self.x + n:] + [" "] * n)[:self.cols]
        elif final == "@":
            self.grid[self.y] = (row[:self.x] + [" "] * n + row[self.x:])[:self.cols]
        elif final == "b":
            for _ in range(n):
                self.put(self.last)
        elif final in "LM":
            self.scroll(self.y, n if final == "M" else -n)
        elif final in "ST":
            self.scroll(self.top, n if final == "S" else -n)
        elif final == "r":
            self.top = n - 1
            self.bottom = (args[1] if len(args) > 1 and args[1] else self.rows) - 1
            self.y = self.x = 0
        elif final == "m":
            self.coloured |= any(30 <= a <= 49 and a not in (39, 49) for a in args)
        elif final not in "lhtg":
            self.unknown.add(text + final)

    def feed(self, text):
        text = self.rest + text
        self.rest = ""
        at = 0
        while at < len(text):
            char = text[at]
            if char == "\x1b":
                found = re.compile(r"\x1b\[([?>=]?)([0-9;]*)([@-~])|\x1b[()][A-Z0-9]|\x1b[=>78M]").match(text, at)
                if not found:
                    if len(text) - at > 24:
                        self.unknown.add(text[at:at + 24])
                        at += 1
                        continue
                    self.rest = text[at:]
                    return
                if found.group(3):
                    self.control(*found.groups())
                elif found.group() == "\x1bM":
                    self.y = max(0, self.y - 1)
                at = found.end()
                continue
            at += 1
            if char == "\r":
                self.x = 0
            elif char == "\n":
                if self.y == self.bottom:
                    self.scroll(self.top, 1)
                else:
                    self.y = min(self.rows - 1, self.y + 1)
            elif char == "\b":
                self.x = max(0, self.x - 1)
            elif char >= " ":
                self.put(char)


class Terminal:
    """A program on a pty of its own."""

    def __init__(self, rows, cols, command, **environment):
        self.screen = Screen(rows, cols)
        self.bytes = b""
        self.raw = b""
        self.status = None
        self.master, slave = os.openpty()
        self.slave = slave
        self.set_size(rows, cols)
        self.before = termios.tcgetattr(slave)
        env = dict(os.environ, TERM="xterm-256color", LC_ALL="C.UTF-8")
        env.pop("NO_COLOR", None)
        env.update(environment)
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.master)
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            for fd in range(3):
                os.dup2(slave, fd)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            try:
                os.execvpe(command[0], command, env)
            finally:
                os._exit(127)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.master)
        os.close(self.slave)
        if error:
            print("--- the screen\n%s\n---" % "\n".join(self.screen.lines()), file=sys.stderr)

    def set_size(self, rows, cols):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def resize(self, rows, cols):
        self.screen.resize(rows, cols)
        self.set_size(rows, cols)
        os.kill(self.pid, signal.SIGWINCH)

    def type(self, text):
        os.write(self.master, text.encode())

    def read(self, seconds):
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        data = os.read(self.master, 65536)
        self.raw += data
        self.bytes += data
        try:
            text = self.bytes.decode()
            self.bytes = b""
        except UnicodeDecodeError as e:
            text = self.bytes[:e.start].decode()
            self.bytes = self.bytes[e.start:]
        self.screen.feed(text)
        return True

    def matches(self, regex):
        return any(re.search(regex, line) for line in self.screen.lines())

    def wait(self, condition, what):
        end = time.monotonic() + PATIENCE
        while not condition():
            self.read(0.05)
            if time.monotonic() > end:
                raise AssertionError("%s: not within %g s" % (what, PATIENCE))
        while self.read(0.02):  # the rest of the frame
            pass

    def expect(self, *regexes):
        for regex in regexes:
            self.wait(lambda r=regex: self.matches(r), "the screen shows /%s/" % regex)

    def expect_not(self, regex):
        self.wait(lambda: not self.matches(regex), "the screen no longer shows /%s/" % regex)

    def ended(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is not None

    def expect_end(self, status):
        """It ends with this status and leaves the terminal as it was."""
        self.wait(self.ended, "its end")
        assert self.status == status, "ended with %d, not %d" % (self.status, status)
        assert termios.tcgetattr(self.slave) == self.before, "the terminal's settings were changed"
        assert self.screen.cursor, "the cursor stays invisible"
        assert not self.screen.alternate, "the alternate screen stays"
        assert not self.screen.unknown, "sequences that the test does not know: %s" % self.screen.unknown
