"""The chain of the audit log: each line has its number and the hash of the line before it. Pure.

It shows, line by line, what an accident or an editor did to the log. Anyone who can write to the state directory can
replace the log, chain and head included, but can't write a run's signature: a line over the chain so far.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from retention_cli.core.json_values import loads
from retention_cli.core.signing import Signed, check, sign, statement

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

ZEROS: Final = "0" * 64
MARK: Final = "broken"
"""The key in a line that was written after a broken end: what was wrong there."""
AFTER: Final = "after"
"""The key in the first line of a file that is not the first one: the name of the file before."""
LATEST: Final = "latest"
"""The key next to it: the latest ``at`` of all lines before. With a clock set back, the last line may not have it."""
MOST: Final = 1_000
"""At most this many breaks are kept; the others are only counted."""
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@dataclass(frozen=True, slots=True)
class Link:
    """Where a chain ends: its last line's number and hash; 0 and zeros before the first line."""

    seq: int = 0
    hash: str = ZEROS


@dataclass(frozen=True, slots=True)
class Break:
    """A place where the chain does not hold, and what that means.

    ``line`` is None if it is not about one line, ``file`` if it is about the complete log.
    """

    line: int | None
    text: str
    file: str | None = None


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where the next line continues: after ``link``. ``broken`` says what is wrong there, None if nothing is.

    ``head``, if not None, is to be written first: a chain begins, or a crash has left the head a line behind.
    """

    link: Link
    broken: str | None = None
    head: Link | None = None


def hash_of(line: bytes) -> str:
    """Return the hash of a line, given without its newline."""
    return hashlib.sha256(line).hexdigest()


def event_of(line: bytes) -> dict[str, Any] | None:
    """Return a line's JSON object, None if it is not one."""
    try:
        event = loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def link_of(event: Mapping[str, Any]) -> Link | None:
    """Return a line's number and the hash *before* it, None if the line is not chained."""
    return as_link(event.get("seq"), event.get("prev"))


def as_link(seq: object, hash_: object) -> Link | None:
    """Return the two as a link, None if they are not valid."""
    if type(seq) is int and 0 <= seq < 2**63 and isinstance(hash_, str) and _HASH.fullmatch(hash_):
        return Link(seq, hash_)
    return None


def latest_of(event: Mapping[str, Any], key: str = LATEST) -> str | None:
    """Return the latest moment of all lines before a later file, if its first line has it."""
    moment = event.get(key)
    return moment if isinstance(moment, str) and _MOMENT.fullmatch(moment) else None


def next_line(
    event: Mapping[str, Any], at: Resumed, after: str | None = None, latest: str | None = None
) -> tuple[bytes, Link]:
    """Return an event as the chain's next line, without its newline, and the chain's new end.

    ``after`` is the file before, if the line is the first of a later file, and ``latest`` the latest moment of all
    lines before, None if that is not known.
    """
    link = Link(at.link.seq + 1, at.link.hash)
    marks = {key: one for key, one in ((MARK, at.broken), (AFTER, after), (LATEST, latest)) if one is not None}
    text = json.dumps({"seq": link.seq, "prev": link.hash, **marks, **event}, ensure_ascii=False, separators=(",", ":"))
    line = text.encode("utf-8", "backslashreplace")  # a lone surrogate, from a path, becomes its JSON escape
    return line, Link(link.seq, hash_of(line))


def resume(last: bytes | None, head: Link | None, problem: str | None = None) -> Resumed:
    """Return where the next line continues. Numbers are never reused, even if lines are missing.

    Args:
        last: the log's last complete line, without its newline; None if it has none.
        head: what the head says; None if there is none, or it can't be read.
        problem: why the head can't be read.
    """
    hash_ = ZEROS if last is None else hash_of(last)
    known = 0 if head is None else head.seq
    here = Link() if last is None else link_of(event_of(last) or {})
    if here is None:
        return Resumed(Link(known, hash_), "the line before can't be read, or is not chained")
    end = Link(here.seq, hash_)
    if problem is not None:
        return Resumed(end, problem)
    if head == end:
        return Resumed(end)
    if head == Link(here.seq - 1, here.hash) or (head is None and last is None):
        return Resumed(end, head=end)
    if head is None:
        what = "there was no head, so whether lines at the end were gone was unknown"
    elif last is None:
        what = f"the log was empty, and its head knew of {known:,} lines"
    elif known > here.seq:
        what = f"the last line before had number {here.seq:,}, and the head knew of {known:,}: lines were gone"
    elif known == here.seq:
        what = "the head had another hash of the line before: it was edited"
    else:
        what = f"the head was another log's, or an older one: it ended at number {known:,}"
    return Resumed(Link(max(known, here.seq), hash_), what)


Place = tuple[int, int]
"""A file's number among those followed, and a line in it, from 1; 0 before the first line."""
_NOWHERE: Final[Place] = (-1, 0)


@dataclass(frozen=True, slots=True)
class _Gap:
    """Numbers that are missing before a line, which names ``after`` if it is the first of a later file."""

    at: Place
    first: int
    last: int
    doubtful: int
    after: str | None


@dataclass(slots=True)
class Chain:
    """Follows a log line by line, file by file, and names each place where the chain does not hold.

    The first chained line was written at ``since``. ``removed`` lines were in complete files before the first one that
    is left; the latest of them was written no later than ``removed_until``. ``behind``: the head is one line behind, as
    after a crash between the two writes; nothing is missing then.
    """

    lines: int = 0
    removed: int = 0
    removed_until: str = ""
    since: str | None = None
    behind: bool = False
    breaks: list[Break] = field(default_factory=list)
    more: int = 0
    _files: list[str] = field(default_factory=list)
    _end: Link = field(default_factory=Link)
    _before: str = ZEROS
    _at: Place = _NOWHERE
    _reported: Place = _NOWHERE
    _doubtful: int = 0
    _gaps: list[_Gap] = field(default_factory=list)
    _strays: list[tuple[Place, int]] = field(default_factory=list)

    def begin(self, file: str) -> None:
        """Begin a file: the next lines are from it."""
        self._files.append(file)

    def go_on_behind(self, file: str, line: bytes, event: Mapping[str, Any]) -> bool:
        """Begin behind a file that is not read, given its last line; return False if that line is not chained."""
        if (link := link_of(event)) is None:
            return False
        self.begin(file)
        self._end, self._before, self.since = Link(link.seq, hash_of(line)), link.hash, _moment(event)
        self._at = (0, 0)
        return True

    def take(self, number: int, line: bytes, event: Mapping[str, Any] | None) -> None:
        """Check the next line, whose number in its file is given; ``event`` is None if it can't be read."""
        self.lines += 1
        at = (max(0, len(self._files) - 1), number)
        link = link_of(event or {})
        if event is None or link is None:
            unreadable = "can't be read as a line of the log: edited, or damaged"
            self._tell(at, unreadable if event is None else "not chained: not written by kretain, or edited")
            self._doubtful += 1
            return
        after = event.get(AFTER)
        after = after if isinstance(after, str) else None
        if self.since is None:
            self._begin_with(event, link, at, after)
        due, follows = self._end.seq + 1, link.hash == self._end.hash
        seq = link.seq
        if MARK in event:
            self._tell(at, f"kretain continued here after a broken end: {_plain(event[MARK])}")
        elif follows and seq != due:
            self._tell(at, f"edited: its number is {seq:,}, {due:,} was due")
            seq = due
        elif seq > due:
            self._keep(self._gaps, _Gap(at, due, seq - 1, self._doubtful, after))
        elif seq < due:
            self._keep(self._strays, (at, seq))
            return
        elif not follows and self._reported != self._at:
            other = f"line {number:,}" if self._at[0] == at[0] else f"line {number:,} of {self._name(at)}"
            self._tell(self._at, f"edited, or {other} was: that one has another hash of the line before it")
        self._end, self._before, self._at, self._doubtful = Link(seq, hash_of(line)), link.hash, at, 0

    def _begin_with(self, event: Mapping[str, Any], link: Link, at: Place, after: str | None) -> None:
        """Take in the first chained line. If it begins a later file, the files before were removed entirely."""
        self.since = _moment(event)
        if self.lines == 1 and link.seq > 1 and after is not None and after not in self._files:
            self.removed = link.seq - 1
            self.removed_until = max(_moment(event), latest_of(event) or "")
            self._end, self._at = Link(self.removed, link.hash), at

    def end(self, head: Link | None, problem: str | None = None) -> None:
        """Compare the end with the head; it is None if there is none, or if it can't be read because of ``problem``."""
        for gap in self._gaps:
            there = {seq for _at, seq in self._strays if gap.first <= seq <= gap.last}
            missing = gap.last - gap.first + 1 - len(there) - gap.doubtful
            if missing > 0:
                self._tell(gap.at, _gap_text(gap, missing, self._files))
        for at, seq in self._strays:
            self._tell(at, f"out of order: its number is {seq:,}, of a line that belongs before")
        self._compare(head, problem)
        order = {name: number for number, name in enumerate(self._files)}
        self.breaks.sort(key=lambda one: (one.line is None, order.get(one.file or "", 0), one.line or 0))

    def _compare(self, head: Link | None, problem: str | None) -> None:
        seq = self._end.seq
        if problem is not None:
            self._tell(None, f"{problem}: whether lines at the end are gone is unknown")
        elif head is None:
            if self.since is not None:
                self._tell(
                    None, "audit.head is missing, beside chained lines: whether lines at the end are gone is unknown"
                )
        elif head.seq > seq + self._doubtful:
            gone = head.seq - seq - self._doubtful
            lines = "a line is" if gone == 1 else f"{gone:,} lines are"
            self._tell(None, f"cut at the end: {lines} missing (audit.head knows of number {head.seq:,})")
        elif head.seq > seq or head == self._end or self._reported == self._at != _NOWHERE:
            pass  # intact, or already reported
        elif head.seq == seq:
            self._tell(
                None if self._at == _NOWHERE else self._at, "edited: audit.head has another hash of the last line"
            )
        elif head == Link(seq - 1, self._before):
            self.behind = True
        else:
            self._tell(None, f"audit.head is of another log, or an older one: it ends at number {head.seq:,}")

    def _name(self, at: Place) -> str | None:
        return self._files[at[0]] if self._files else None

    def _tell(self, at: Place | None, text: str) -> None:
        self._reported = _NOWHERE if at is None else at
        self._keep(self.breaks, Break(None, text) if at is None else Break(at[1] or None, text, self._name(at)))

    def _keep(self, where: list[Any], what: object) -> None:
        if len(where) < MOST:
            where.append(what)
        else:
            self.more += 1


def _gap_text(gap: _Gap, missing: int, files: Sequence[str]) -> str:
    """Return what a gap means: lines of a file are missing, or a complete file, or the end of the file before."""
    lines = "a line" if missing == 1 else f"{missing:,} lines"
    gone = f"{lines} {'is' if missing == 1 else 'are'} missing"
    due = f"number {gap.first:,} was due"
    if gap.after is None:
        front = "cut at the front: " if gap.first == 1 and gap.at == (0, 1) else ""
        return f"{front}{gone} before it ({due})"
    if gap.after in files:
        return f"{_plain(gap.after)}, the file before it, was cut at the end: {gone} ({due})"
    return f"a file is missing before it: {_plain(gap.after)}, and with it {lines} ({due})"


def _moment(event: Mapping[str, Any]) -> str:
    return latest_of(event, "at") or "an unknown time"


def _plain(value: object) -> str:
    """Return a value from the file, shortened, without characters that a terminal would interpret."""
    return "".join(one if one.isprintable() else "?" for one in str(value)[:200])


SIGNATURE: Final = "signature"
"""The line's event."""
_FORMAT: Final = "kretain.signature/v1"


def signature_line(run: str, end: Link, key: Ed25519PrivateKey) -> dict[str, Any]:
    """Return the line's event, without its time.

    Args:
        run: the run's name.
        end: the run's last line, which the chain ties to all lines before it, and so to the checksums in them.
        key: who signs.
    """
    signed = sign(_message(run, end), key)
    return {"event": SIGNATURE, "run": run, "key": signed.key, "signature": signed.signature}


def is_signed(line: Mapping[str, Any], key: Ed25519PublicKey) -> bool:
    """Return whether a line of the log is a signature by this key over the line before it."""
    if (link := link_of(line)) is None or line.get("event") != SIGNATURE:
        return False
    signed = Signed(str(line.get("key")), str(line.get("signature")))
    return check(_message(line.get("run"), Link(link.seq - 1, link.hash)), signed, key)


def _message(run: object, end: Link) -> bytes:
    return statement({"format": _FORMAT, "run": run, "seq": end.seq, "hash": end.hash})
