"""Tables and figures of papers, made again and told as they came out: the claims that `docs/reproduction.md` lists."""

from scripts.reproduction.findings import (
    Claim as Claim,
    Effort as Effort,
    Finding as Finding,
    Reason as Reason,
    Verdict as Verdict,
)
