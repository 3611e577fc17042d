"""Labels from silos that never show their votes: each adds noise, and masks that cancel in the sum.

The protocol follows Bonawitz et al. (2017), "Practical Secure Aggregation for Privacy-Preserving
Machine Learning", with signatures, and with shares that can be verified. With few silos every pair
shares a mask.
"""

from pate._labeling.commands.table import Command

COMMANDS = {
    "silo key": Command(
        "pate.lab.silos.command:key",
        "make the signing key of a silo, or of the server",
        "pate silo key north/silo.pem keys/north.pub",
    ),
    "silo": Command(
        "pate.lab.silos.command:main",
        "take part in labels from silos that keep their votes secret",
        "pate silo exchange --name north --votes north/votes.npz --state north/private "
        "--signing_key north/silo.pem --public_keys keys --max_epsilon 4 --delta 1e-6",
    ),
}
