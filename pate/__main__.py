"""The command `pate`, also as `python -m pate`, with one line on Ctrl-C even during its imports.

Before the first line only ``sys`` is imported, which is built in: with ``python -m`` Python looks
for all other modules in the working directory first.
"""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]


def main() -> int:
    """Run `pate` and return its exit status; see `pate.cli.main`."""
    try:
        import os
        import signal

        # child processes, such as workers, do not import from the working directory either
        os.environ["PYTHONSAFEPATH"] = "1"

        from pate import cli

        # an interrupt prints one line, without the errors of finalizers that it met
        report = sys.unraisablehook
        sys.unraisablehook = lambda error: None if cli.was_stopped() else report(error)
        try:
            return cli.main()
        finally:
            # after an interrupt in code that a library compiled, Python exits as if killed, unless
            # it compiles other code
            exec("")
            # Ctrl-C during Python's own cleanup would print a traceback
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
    except KeyboardInterrupt:
        sys.stderr.write("pate: interrupted; nothing had begun\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
