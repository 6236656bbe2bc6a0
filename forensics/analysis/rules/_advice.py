"""Advice that more than one finding gives. Each piece was paid for in a real incident."""

from __future__ import annotations

EVIDENCE_FIRST = "capture every node before anything is restarted: the restart destroys stacks, rings, /dev/shm and the last log"
TOGETHER = "restart all nodes of the engine together, never the head alone: a follower gets no sign of the head's death and lives on"
RACE = "expect a rendezvous race on relaunch: make sure that every rank of the old run is gone, and that the ports are free, first"
NO_LONGER_LIMIT = "do not raise the execution limit: for a deadlock it only delays the same line"
QUEUE_OWNER = "find the consumer: a larger queue alone does not repair who owns the item"
POWER_FIRST = "check power and clocks (caps, brakes, throttling) before suspecting the hardware"
NOT_THE_REPORTER = "look for the rank that is silent: the rank that reports a timeout waits for another one"
SECOND_LOOK = "capture again a minute later: two captures tell what is stuck from what is slow"
WHOLE_NODE = "read the kernel log of that node over the minutes before"
