"""Tables and figures of papers, made again and told as they came out: the claims that `docs/reproduction.md` lists."""

from pate.reproduction.findings import Claim as Claim
from pate.reproduction.findings import Effort as Effort
from pate.reproduction.findings import Finding as Finding
from pate.reproduction.findings import Verdict as Verdict
