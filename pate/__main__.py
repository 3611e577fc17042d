"""The command `pate`, also as `python -m pate`: Ctrl-C is one line while what it needs is still imported, too.

Up to the first line nothing is imported but ``sys``, which is built in: for ``python -m`` Python
looks for all else in the working directory first.
"""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]


def main() -> int:
    """Run `pate` and return its exit status; see `pate.cli.main`."""
    try:
        import os
        import signal

        # processes that it starts, such as workers, do not begin in the working directory either
        os.environ["PYTHONSAFEPATH"] = "1"

        from pate import cli

        # an interrupt has its one line; what it left half made, or met in a finalizer, has none
        tell = sys.unraisablehook
        sys.unraisablehook = lambda told: None if cli.was_stopped() else tell(told)
        try:
            return cli.main()
        finally:
            # Python ends as killed after an interrupt in code that a library compiled, until the
            # next code is compiled
            exec("")
            # all is said, and what Python puts away at its end would answer with a traceback
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
    except KeyboardInterrupt:
        sys.stderr.write("pate: interrupted; nothing had begun\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
