"""The store itself. Each call is one short transaction of its own, so that any number of analyses may write at once.

A network home directory cannot hold SQLite's shared-memory log: the ordinary rollback journal is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from forensics.history.fingerprint import fingerprint, is_incident, told_engine, told_root
from forensics.model import Report, SeenBefore

SCHEMA = 1
WAIT_S = 3.0
"""How long to wait while others write: an analysis is not held up for longer."""
SAME_NS = 600 * 10**9
"""One process that breaks in one way is photographed again and again: within this time it is one incident."""
TEXT_LIMIT = 2000
_TABLES = """
CREATE TABLE IF NOT EXISTS incidents (
  id TEXT PRIMARY KEY, fingerprint TEXT, cause TEXT, at_ns INTEGER NOT NULL, recorded_ns INTEGER NOT NULL,
  kind TEXT, state TEXT, finding TEXT, grade TEXT, title TEXT, sentence TEXT, node TEXT, rank INTEGER, pid INTEGER,
  versions TEXT, names TEXT, inputs TEXT);
CREATE TABLE IF NOT EXISTS evidence (key TEXT PRIMARY KEY, incident TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS by_cause ON incidents (cause);
"""


class HistoryError(Exception):
    """The store cannot be used; its text says why, in one line."""

    exit_code = 1

    def __init__(self, message: str, cure: str = "") -> None:
        super().__init__(message)
        self.cure = cure


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """One incident as it is kept. Times are ns since the epoch; `at_ns` is that of the incident, not of its analysis."""

    id: str
    at_ns: int
    recorded_ns: int
    fingerprint: str | None = None
    cause: str | None = None
    kind: str = ""
    state: str = ""
    finding: str | None = None
    grade: str | None = None
    title: str = ""
    sentence: str = ""
    node: str | None = None
    rank: int | None = None
    pid: int | None = None
    versions: dict[str, str] = {}
    names: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()


def state_file() -> Path:
    """$FORENSICS_STATE_DIR/history.sqlite, else below $XDG_STATE_HOME, else below ~/.local/state. Raises HistoryError without a home."""
    if own := os.environ.get("FORENSICS_STATE_DIR", ""):
        return Path(own) / "history.sqlite"
    base = os.environ.get("XDG_STATE_HOME", "")
    try:
        folder = Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError:
        raise HistoryError("there is no home directory", "name one with FORENSICS_STATE_DIR") from None
    return folder / "forensics" / "history.sqlite"


def from_report(report: Report, evidence: Sequence[str] = ()) -> Incident | None:
    """What to keep of a report; None where nothing broke. `evidence`: keys of the inputs, for an incident that tells no time."""
    if not is_incident(report):
        return None
    mark, root, engine = fingerprint(report), told_root(report), told_engine(report)
    first = report.first_event
    now = time.time_ns()
    at = report.root.since_ns if report.root.since_ns is not None else first.at.earliest_ns if first else now
    kind = engine.kind if engine else ""
    # an incident whose evidence is not known is itself by its time and place
    own = [*sorted(evidence)] or [kind, str(report.root.finding), str(report.root.node), str(report.root.rank), str(at)]
    return Incident(
        id=hashlib.sha256("\0".join(own).encode("utf-8", "surrogatepass")).hexdigest()[:12],
        fingerprint=mark.fingerprint if mark else None,
        cause=mark.cause if mark else None,
        at_ns=at,
        recorded_ns=now,
        kind=kind,
        state=report.verdict.state,
        finding=report.root.finding,
        grade=report.root.grade.value if report.root.grade else None,
        title=_kept(root.title) if root else "",
        sentence=_kept(report.verdict.sentence),
        node=report.root.node,
        rank=report.root.rank,
        pid=report.root.pid,
        versions=mark.versions if mark else {},
        names=mark.names if mark else (),
        inputs=tuple(_kept(name) for name in report.inputs[:50]),
    )


def _kept(text: str) -> str:
    return text[:TEXT_LIMIT].encode("utf-8", "replace").decode("utf-8")


class Store:
    """The store in one file. Nothing is opened before something is asked; every method raises HistoryError, and nothing else."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or state_file()

    def record(self, incident: Incident, evidence: Sequence[str] = ()) -> Incident:
        """Keep an incident. One that is known already (see `_known`) is told anew and stays one. Returns it as it is kept."""
        with self._writing() as db:
            known = self._known(db, incident, evidence)
            if known:
                incident = msgspec.structs.replace(incident, id=known)
            row = _row(incident)
            marks = ", ".join("?" * len(row))
            db.execute(f"INSERT OR REPLACE INTO incidents ({', '.join(row)}) VALUES ({marks})", list(row.values()))
            db.executemany("INSERT OR REPLACE INTO evidence VALUES (?, ?)", [(key, incident.id) for key in evidence])
            return incident

    def seen_before(self, incident: Incident, evidence: Sequence[str] = ()) -> SeenBefore | None:
        """Other incidents with the same cause; None where the incident has no fingerprint. Reads only."""
        if incident.fingerprint is None:
            return None
        with self._reading() as db:
            if db is None:
                return SeenBefore(fingerprint=incident.fingerprint)
            own = {incident.id, self._known(db, incident, evidence)}
            asked = db.execute("SELECT id, fingerprint, at_ns FROM incidents WHERE cause = ?", (incident.cause,))
            others = [(mark, at) for id, mark, at in asked if id not in own]
        same = [at for mark, at in others if mark == incident.fingerprint]
        other = [at for mark, at in others if mark != incident.fingerprint]
        return SeenBefore(
            fingerprint=incident.fingerprint,
            times=len(same),
            last_ns=max(same, default=None),
            other_versions=len(other),
            other_last_ns=max(other, default=None),
        )

    def incidents(self, limit: int | None = None) -> list[Incident]:
        """All incidents, the latest first."""
        with self._reading() as db:
            if db is None:
                return []
            rows = db.execute("SELECT * FROM incidents ORDER BY at_ns DESC, id LIMIT ?", (-1 if limit is None else limit,))
            columns = [c[0] for c in rows.description]
            return [_incident(dict(zip(columns, row, strict=True))) for row in rows]

    def find(self, mark: str) -> list[Incident]:
        """Those whose fingerprint, or own id, begins with `mark`, the latest first."""
        return [i for i in self.incidents() if (i.fingerprint or "").startswith(mark) or i.id.startswith(mark)]

    def forget(self, ids: Sequence[str]) -> int:
        """Take incidents out. Returns how many there were."""
        if not self.path.exists():
            return 0
        with self._writing() as db:
            gone = sum(db.execute("DELETE FROM incidents WHERE id = ?", (id,)).rowcount for id in ids)
            db.executemany("DELETE FROM evidence WHERE incident = ?", [(id,) for id in ids])
            return gone

    @staticmethod
    def _known(db: sqlite3.Connection, incident: Incident, evidence: Sequence[str]) -> str | None:
        """Id of the same incident: the same evidence was analysed before, or the same process broke in the same way at that time."""
        for key in evidence:
            if found := db.execute("SELECT incident FROM evidence WHERE key = ?", (key,)).fetchone():
                return str(found[0])
        # a log that names no pid may hold the next incident of that rank a minute later: there the time must be the same
        within = SAME_NS if incident.pid is not None else 0
        found = db.execute(
            "SELECT id FROM incidents WHERE cause = ? AND node IS ? AND rank IS ? AND pid IS ? AND at_ns BETWEEN ? AND ? LIMIT 1",
            (incident.cause, incident.node, incident.rank, incident.pid, incident.at_ns - within, incident.at_ns + within),
        ).fetchone()
        return str(found[0]) if found else None

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._said():
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # made here and not by SQLite, so that nobody else can read it from the first moment
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            with contextlib.closing(sqlite3.connect(self.path, timeout=WAIT_S, isolation_level=None)) as db:
                db.execute("BEGIN IMMEDIATE")
                try:
                    version = db.execute("PRAGMA user_version").fetchone()[0]
                    self._check(version)
                    if version == 0:
                        for statement in _TABLES.split(";"):
                            db.execute(statement)
                        db.execute(f"PRAGMA user_version = {SCHEMA}")
                    yield db
                except BaseException:
                    db.rollback()
                    raise
                db.execute("COMMIT")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        with self._said():
            try:
                empty = not self.path.stat().st_size
            except FileNotFoundError:
                empty = True
            if empty:
                yield None
                return
            with contextlib.closing(sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True, timeout=WAIT_S)) as db:
                version = db.execute("PRAGMA user_version").fetchone()[0]
                self._check(version)
                yield db if version else None

    def _check(self, version: int) -> None:
        if version > SCHEMA:
            raise HistoryError(f"{self.path} was written by a newer version (schema {version})", "use that version")

    @contextlib.contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            broken = isinstance(error, sqlite3.OperationalError)
            cure = "" if broken else "move the file away; a new one is made"
            raise HistoryError(f"{self.path}: {error}", cure) from error
        except (OSError, ValueError, OverflowError) as error:  # a time or a pid of hostile evidence may be any number
            raise HistoryError(f"{self.path}: {getattr(error, 'strerror', None) or error}") from error


def _row(incident: Incident) -> dict[str, object]:
    row: dict[str, object] = {name: getattr(incident, name) for name in incident.__struct_fields__}
    return row | {name: json.dumps(row[name]) for name in ("versions", "names", "inputs")}


def _incident(row: dict[str, object]) -> Incident:
    """From a row of the store, which anybody who may write the file can have changed: what does not fit is a broken store."""
    read = row | {name: json.loads(str(row[name])) for name in ("versions", "names", "inputs")}
    try:
        return msgspec.convert(read, Incident)
    except msgspec.ValidationError as error:
        raise ValueError(f"a row is not an incident: {error}") from None
