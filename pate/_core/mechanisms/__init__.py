"""Private selection, with the noise that it draws."""

# mechanisms are known by name once their module is imported
from pate._core.mechanisms import (
    canonical as canonical,
    joint as joint,
    limited_domain as limited_domain,
    peeling as peeling,
    stable_top_k as stable_top_k,
)
