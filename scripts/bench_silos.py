"""Seconds of one core that a sum of silos takes, all parties in one process and one after the other.

python -m scripts.bench_silos [--silos 40] [--queries 5000] [--labels 40] [--colluding 4] [--dropouts 4]

One silo of those that may drop out does. What is opened is compared with the sum of the shares, bit by bit.
"""

import argparse
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import pate
from pate._silos.exchange import AwaitedError, Exchange
from pate._silos.invitation import Invitation
from pate._silos.member import Consent, Member
from pate._silos.server import Server, invite
from pate._silos.signing import SigningKey, make_key, read_public_keys
from pate.mechanisms import private_generator
from pate.mechanisms._noise_shares import summand

NUM_TEACHERS = 50  # of each silo


def measure(*, silos: int, queries: int, labels: int, colluding: int, dropouts: int) -> dict[str, float]:
    """Return the seconds of one core that each step takes, of all silos together.

    Raises ``AssertionError`` if the sum is another than that of the shares.
    """
    seconds = {}
    with TemporaryDirectory() as temporary:
        folder, names = Path(temporary), [f"silo-{number:02d}" for number in range(silos)]
        ids, label_names = np.char.mod("%05d", np.arange(queries)), tuple(np.char.mod("%02d", np.arange(labels)))
        for name in (*names, "server"):
            make_key(folder / name / "silo.pem", folder / "keys" / f"{name}.pub")
        server_key = SigningKey.read(folder / "server" / "silo.pem")
        terms = Invitation(
            teachers=dict.fromkeys(names, NUM_TEACHERS),
            keys=read_public_keys(folder / "keys", names),
            server_key=server_key.public,
            ids=ids.tolist(),
            label_names=[str(name) for name in label_names],
            sigma_silos=100.0,
            colluding=colluding,
            dropouts=dropouts,
            delta=1e-6,
        )
        consent = Consent(digest=terms.digest, accepts=lambda _: True)
        generator, members = np.random.default_rng(0), []
        for name in names:
            counts = generator.integers(0, NUM_TEACHERS + 1, (queries, labels))
            votes = pate.NamedVotes(ids=ids, label_names=label_names, counts=counts, num_teachers=NUM_TEACHERS)
            votes.save(folder / name / "votes.npz")
            place = folder / name
            members.append((name, place / "votes.npz", place / "private", place / "silo.pem", consent))
        shared = folder / "exchange"
        invite(Exchange(shared), terms)
        gone = members[:1] if dropouts else []
        for step in ("keys", "shares", "masked", "unmasking"):
            started = time.process_time()
            if step == "unmasking":
                with suppress(AwaitedError):  # of the silos, which are listed
                    Server(Exchange(shared), server_key, [name for name, *_ in gone]).open()
            for each in members:
                # the first one masks in the third step, when all shares are there
                if step in ("keys", "shares") or each not in gone:
                    with suppress(AwaitedError):
                        Member(Exchange(shared), *each).advance()
            seconds[step] = time.process_time() - started
        started = time.process_time()
        total, num_silos = Server(Exchange(shared), server_key).open()
        seconds["sum"] = time.process_time() - started
        expected = np.zeros_like(total)
        for each in members[len(gone) :]:
            member = Member(Exchange(shared), *each)
            noise = private_generator(member._secrets.noise_key)
            expected += summand(member._counts(), terms.mechanism.share_sigma, noise)
        assert np.array_equal(total, expected) and num_silos == silos - len(gone)
    return seconds


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"silos": 40, "queries": 5000, "labels": 40, "colluding": 4, "dropouts": 4}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    seconds = measure(**vars(parser.parse_args(arguments)))
    print("| step | seconds |\n| --- | ---: |")
    for step, spent in (seconds | {"all": sum(seconds.values())}).items():
        print(f"| {step} | {spent:.1f} |")


if __name__ == "__main__":
    main()
