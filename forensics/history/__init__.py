"""The incident store: which causes this machine has seen, and how often. SQLite, one file, under the state directory."""

from forensics.history.fingerprint import Fingerprint, fingerprint, is_incident
from forensics.history.store import HistoryError, Incident, Store, from_report, state_file

__all__ = ["Fingerprint", "HistoryError", "Incident", "Store", "fingerprint", "from_report", "is_incident", "state_file"]
