"""The test vectors of docs/appendix/silo-protocol.md, computed by its formulas and by the program."""

import hashlib
import hmac
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from Crypto.Cipher import ChaCha20
from Crypto.Protocol.DH import key_agreement
from Crypto.PublicKey import ECC
from Crypto.Signature import eddsa

from pate.lab.silos.exchange import SERVER, Invitation, _text
from pate.lab.silos.secrets import (
    Secrets,
    SigningKey,
    agreed_seed,
    derived,
    mask_of,
    masked,
    share,
    unmasked,
)
from tests.lab.silos.exchanges import Hospitals

PAGE = (Path(__file__).parents[3] / "docs" / "appendix" / "silo-protocol.md").read_text()
VECTORS = {
    name: words.split()
    for name, words in re.findall(r"^\| ([^|]+) \| `([0-9a-f ]+)` \|$", PAGE, flags=re.MULTILINE)
}
(INVITATION,) = re.findall(r"^```json\n(.*?)\n```$", PAGE, flags=re.MULTILINE | re.DOTALL)
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
NAMES = ("a", "b", "c")
ROOTS = {name: bytes([16 * number]) * 32 for number, name in enumerate(NAMES, 1)}


def hkdf(secret: bytes, size: int, *parts: str) -> bytes:
    """HKDF of RFC 5869, by HMAC of the standard library."""
    key = hmac.digest(b"pate silos", secret, "sha512")
    block, blocks = b"", b""
    for number in range(1, math.ceil(size / 64) + 1):
        block = hmac.digest(key, block + json.dumps(parts).encode() + bytes([number]), "sha512")
        blocks += block
    return blocks[:size]


def coefficients(name: str, purpose: str) -> list[int]:
    return [
        int.from_bytes(hkdf(ROOTS[name], 64, f"{purpose} {k}", VECTORS["digest"][0], name), "big")
        % (ORDER - 1)
        + 1
        for k in range(3)
    ]


def stream(seed: bytes, words: int) -> list[int]:
    content = ChaCha20.new(key=seed, nonce=bytes(12)).encrypt(bytes(8 * words))
    return [int.from_bytes(content[8 * each : 8 * each + 8], "little") for each in range(words)]


def by_formulas() -> dict[str, list[str]]:
    """Return the values of the page by its formulas, without the program."""
    digest = hashlib.sha256(INVITATION.encode()).hexdigest()
    server = ECC.construct(curve="Ed25519", seed=bytes([9]) * 32)
    content = {"invitation": digest, "survivors": NAMES}
    text = json.dumps(["pate silos", "survivors", "the server", content], sort_keys=True)
    own = {name: coefficients(name, "own mask") for name in NAMES}
    pairs = {name: coefficients(name, "masks of pairs")[0] for name in NAMES}
    keys = {name: ECC.construct(curve="P-256", d=secret) for name, secret in pairs.items()}
    own_seed = {name: hkdf(own[name][0].to_bytes(32, "big"), 32, "own mask") for name in NAMES}
    seed = {}
    for first, second in (("a", "b"), ("a", "c"), ("b", "c")):
        agreed = key_agreement(
            static_priv=keys[first], static_pub=keys[second].public_key(), kdf=bytes
        )
        seed[first, second] = hkdf(agreed, 32, "mask", digest, first, second)
    vectors = []
    for name, value in zip(NAMES, (5, 6, 7), strict=True):
        total = value + stream(own_seed[name], 1)[0]
        for (first, second), each in seed.items():
            total += (stream(each, 1)[0]) * ((name == first) - (name == second))
        vectors.append(total % 2**64)
    opened = sum(vectors) - sum(stream(each, 1)[0] for each in own_seed.values())
    sealing = ECC.construct(curve="Curve25519", seed=hkdf(ROOTS["a"], 32, "sealing", digest, "a"))
    return {
        "digest": [digest],
        "signature of `survivors` a, b, c": [
            eddsa.new(server, "rfc8032").sign(text.encode()).hex()
        ],
        "`s_0` of a": [f"{own['a'][0]:064x}"],
        "`p_0` of a": [f"{pairs['a']:064x}"],
        "`p_0 G` of a": [keys["a"].public_key().export_key(format="SEC1").hex()],
        "sealing key of a, public": [sealing.public_key().export_key(format="raw").hex()],
        "share of `s` of a for b": [
            f"{sum(each * 2**k for k, each in enumerate(own['a'])) % ORDER:064x}"
        ],
        "`d` of a and b": [seed["a", "b"].hex()],
        "own mask of a, two words": [f"{word:016x}" for word in stream(own_seed["a"], 2)],
        "masked vectors of the summands 5, 6, 7": [f"{word:016x}" for word in vectors],
        "their sum without own masks": [f"{opened % 2**64:016x}"],
    }


def by_the_program() -> dict[str, list[str]]:
    terms = Invitation.of(INVITATION.encode())
    server = SigningKey(ECC.construct(curve="Ed25519", seed=bytes([9]) * 32))
    content = {"invitation": terms.digest, "survivors": NAMES}
    secrets = {name: Secrets(ROOTS[name], terms.digest, name, terms.threshold) for name in NAMES}
    roster = {name: each.public for name, each in secrets.items()}
    a = secrets["a"]
    vectors = [
        masked(np.array([value], np.uint64), secrets[name], roster)
        for name, value in zip(NAMES, (5, 6, 7), strict=True)
    ]
    opened = unmasked(
        vectors,
        own_mask_seeds=[each.own_mask_seed for each in secrets.values()],
        pairs_keys={},
        roster=roster,
        context=terms.digest,
    )
    seed = agreed_seed(a.pairs_key, "a", "b", roster["b"], terms.digest)
    return {
        "digest": [terms.digest],
        "signature of `survivors` a, b, c": [server.sign(_text("survivors", SERVER, content))],
        "`s_0` of a": [a.own_mask_seed.hex()],
        "`p_0` of a": [a.pairs_key.hex()],
        "`p_0 G` of a": [a.public.pairs[0].hex()],
        "sealing key of a, public": [a.public.sealing.hex()],
        "share of `s` of a for b": [share(a._coefficients("own mask"), 1).hex()],
        "`d` of a and b": [seed.hex()],
        "own mask of a, two words": [
            f"{word:016x}" for word in mask_of(derived(a.own_mask_seed, "own mask"), 2)
        ],
        "masked vectors of the summands 5, 6, 7": [f"{int(word[0]):016x}" for word in vectors],
        "their sum without own masks": [f"{int(opened[0]):016x}"],
    }


@pytest.mark.parametrize("values", [by_formulas, by_the_program])
def test_vectors(values: object) -> None:
    assert callable(values) and values() == VECTORS


def test_a_bound_on_files(tmp_path: Path) -> None:
    """The bound that the page states is the one that readers compare with."""
    assert "`8 Q C + 2048 S + 65536`" in PAGE
    assert Hospitals(tmp_path).exchange.most_bytes == 8 * 4 * 2 + 2048 * 3 + 65536
