"""What has no fixture, and why. Short, or it is no exception."""

from __future__ import annotations

NEVER_CLEAR = {
    "execution_mode": "where nothing tells the mode it cannot tell either, and else it tells the mode",
    "fabric": "where nothing speaks of a fabric the question does not arise; counters that did not move are a finding, refuted",
    "memory_exhaustion": "memory that did not run out is a finding, refuted, with the figures",
    "patch": "it is asked only where somebody names patches, and each of them is live, absent or unreadable",
}
NEVER_INCONCLUSIVE = {
    "container": "it reads what a platform says of its containers, and without that the question does not arise",
    "dp_peer": "where neither logs nor stacks were read no second replica is known",
    "evidence_missing": "it tells what others lack",
    "patch": "a process that could not be asked is a finding of its own: unreadable",
}
NOT_RECORDED = {
    "config_disagreement": "the toy engine states its settings in one place",
    "container": "no container platform runs with the tests",
    "dp_peer": "the toy engine has one replica",
    "execution_mode": "the toy engine has one way to run its steps",
    "fabric": "no RDMA port is there to be recorded",
    "patch": "nobody names a patch of the toy engine",
    "thermal_high": "the machine that recorded shows no sensor",
}
NO_FIXTURE_FIRES: dict[str, str] = {}
"""Finding id to why nothing here makes it."""
