"""Empirical lower bounds on epsilon, for any function that releases numbers.

Run a release many times on two neighbouring data sets and look for an event that is too much
likelier on one of them. Use it on estimators of your own before they see confidential data:

>>> from dpstats import audit
>>> def release(data, rng):
...     return sum(data) + rng.laplace(scale=0.5)  # meant to be private at eps = 1
>>> audit.lower_bound(release, [1, 0, 1], [1, 0, 0], eps=1, rng=1, progress=False).passed
False

`lower_bound` audits one pair of neighbours, `search` looks for the worst of several pairs
(`neighbours` makes them from replacement rows), `from_samples` takes runs drawn elsewhere.

A lower bound can only refute. It never proves that a release is private: another pair, another
event or more runs may show more. Audit with made-up data: thousands of runs on confidential data
are thousands of releases, each of which costs its eps.
"""

from __future__ import annotations

from dpstats.audit.bounds import clopper_pearson
from dpstats.audit.model import from_samples, lower_bound, neighbours, search
from dpstats.audit.results import AuditResult, Event

__all__ = [
    "AuditResult",
    "Event",
    "clopper_pearson",
    "from_samples",
    "lower_bound",
    "neighbours",
    "search",
]
