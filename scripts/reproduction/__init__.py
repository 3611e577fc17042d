"""Tables and figures of papers, made again and told as they came out: the claims that `docs/reproduction.md` lists."""

from scripts.reproduction.findings import Claim as Claim
from scripts.reproduction.findings import Effort as Effort
from scripts.reproduction.findings import Finding as Finding
from scripts.reproduction.findings import Reason as Reason
from scripts.reproduction.findings import Verdict as Verdict
