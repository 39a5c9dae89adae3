/* Who has read what (F1 to F10, G2, M1, M2, M4): one partition of at most four offsets, two groups, two leader epochs.
 * The world changes; kretain looks at all of it at once, in a plan and again in a recheck, and deletes a step later.
 * `verdict` knows what no client can: how far each group has truly read. -DNO_F1 removes that rule, and so on;
 * -DFAULTS=n is how often the world may do something out of the ordinary. Lines that begin with "@" are the trace. */
#ifndef FAULTS
#define FAULTS 2
#endif
#define NONE 15
#define at(p) (p & 7)  /* a position is an offset ... */
#define ep(p) (p >> 3) /* ... and the leader epoch of the last record before it */
#define pos(o, epoch) ((o) | ((epoch) << 3))
#define min(a, b) ((a) < (b) -> (a) : (b))
#define max(a, b) ((a) > (b) -> (a) : (b))

/* The log: its id, leader epoch and where epoch 1 began, log start, high watermark; the follower's, once it has stopped. */
bit id, e, behind;
byte e1, S, H, fS, fH;
/* Groups: commit, live member, first offset pending in a transaction, commit on another partition, known to a coordinator. */
byte c[2] = NONE;
bit mem[2], pend[2], sib[2], lst[2];
/* What may be away: rights to list groups (only the first is seen then), g1's coordinator, answers about leader epochs. */
bit no_rights, no_coordinator, no_ends;
/* The truth: how far a group has read, had at kretain's last look (NONE: none) and at most at any look; whether its commit
 * is of another log, whether a look could have told so or was fooled, and whether the commit was there at the last look. */
byte rd[2], srd[2] = NONE, most[2];
bit stale[2], told[2], looked[2], fooled[2];
/* The ledger: a commit that counted, one not judged yet, one refused, one that is gone (and ever counted); of which topic. */
byte k[2] = NONE, o[2] = NONE, r[2] = NONE, gone[2] = NONE;
bit proven[2], mid[2], msib[2];
/* 1: planned, 2: rechecked; the target, the plan's floor, epoch and topic; what happened since the recheck. */
byte phase, target, floor;
bit planned_e, planned_id, elected, unseen;
byte faults, g, n, low, end, any, bad, complete, away, unknown; /* between steps all but the first are 0 */
#ifdef YOUNGER /* the partition is added to its topic later, and groups.latest names g1 */
bit younger, saw1, exists;
#define EXISTS exists
#define WAIVED (g == 1 && !younger)
#else
#define EXISTS true
#define WAIVED false
#endif
#ifdef WATCHED /* groups.watch.first: a tick. Since when all groups were watched, and who has gone within the last tick */
byte watched, ticks, left[2] = NONE;
#define leaves(x) left[x] = (c[x] == NONE || stale[x] || srd[x] != NONE || watched == 2 -> left[x] : rd[x]); vanish(x)
#else
#define leaves(x) vanish(x)
#endif
#define epoch_end(of) ((of) == e -> H : max(e1, S))
#define hidden_from_us(x) (x == 1 && ((no_rights && lst[0]) || no_coordinator))
#define start(x) ((c[x] == NONE || stale[x]) -> S : max(at(c[x]), S))
#define may_fail (faults < FAULTS)
#define g1_may (_pid == 1 && may_fail) /* g0 only reads, goes back and goes: so there are fewer states */
#define remembers(x) (mid[x] == id)
#ifdef NO_M1
#define SAME_TOPIC true
#else
#define SAME_TOPIC remembers(g)
#endif
#if defined(NO_F1) || (defined(OUTSIDE) && defined(NO_F7))
#define COUNTED 1
#else
#define COUNTED 2
#endif
#define BEYOND(p) (at(p) > epoch_end(0)) /* what its epoch has in this log: it never counted (F6) */

inline moved(x) { stale[x] = 0; told[x] = 0; looked[x] = 0; lst[x] = 1 }
inline vanish(x) { c[x] = NONE; moved(x) }

inline remember(x) /* what the ledger learns of a group that is listed and was read */
{
#ifndef NO_M1
    if
    :: !remembers(x) ->
        r[x] = ((c[x] != NONE && (c[x] == k[x] || c[x] == o[x] || c[x] == r[x])) -> c[x] : NONE);
        k[x] = NONE; o[x] = NONE; gone[x] = NONE; proven[x] = 0; msib[x] = 0
    :: else
    fi;
#endif
    mid[x] = id;
    msib[x] = (sib[x] || (msib[x] && c[x] == NONE));
    if
    :: c[x] == NONE ->
        if
        :: o[x] != NONE -> gone[x] = o[x]; proven[x] = 0
        :: o[x] == NONE && k[x] != NONE -> gone[x] = k[x]; proven[x] = 1
        :: else
        fi;
        k[x] = NONE; o[x] = NONE; r[x] = NONE
    :: else ->
        k[x] = ((gone[x] != NONE && proven[x]) -> gone[x] : k[x]);
        gone[x] = NONE; proven[x] = 0;
        r[x] = (r[x] == c[x] -> c[x] : NONE);
        o[x] = ((r[x] != c[x] && c[x] != k[x]) -> c[x] : o[x]);
        if
        :: o[x] != NONE && (at(o[x]) > H || ep(o[x]) > e) -> r[x] = o[x]; o[x] = NONE
        :: o[x] != NONE && at(o[x]) <= H && (ep(o[x]) == e || (ep(o[x]) < e && !no_ends && !BEYOND(o[x]))) ->
            k[x] = o[x]; o[x] = NONE
        :: else
        fi;
        looked[x] = 1; most[x] = max(most[x], rd[x]); /* and what the truth will hold kretain to */
        if
        :: !stale[x] && r[x] != c[x] -> srd[x] = rd[x]; fooled[x] = 0
        :: stale[x] && (at(c[x]) > H || ep(c[x]) > e) -> told[x] = 1
        :: stale[x] && at(c[x]) <= H && ep(c[x]) < e && at(c[x]) > epoch_end(0) -> told[x] = 1;
            srd[x] = (k[x] == c[x] -> rd[x] : srd[x]) /* it counts at the cut */
        :: else /* the same commit as on the topic of before looks like a leftover until it moves */
        fi;
        fooled[x] = (fooled[x] || (stale[x] && !told[x]))
    fi
}

inline count_gone(p, ever) /* where a position that is gone counts */
{
#ifdef NO_F6
    skip
#else
    if
    :: !ever -> unknown = 1
#ifndef NO_M4
    :: ever && ep(p) != e && no_ends -> unknown = 1
#endif
#ifdef NO_M2
    :: else -> low = min(low, at(p))
#else
    :: ever && (ep(p) > e || (ep(p) == e && at(p) > H)) -> unknown = 1
    :: else -> low = min(low, min(at(p), epoch_end(ep(p))))
#endif
    fi
#endif
}

inline count_commit(p) /* where a commit counts, if it is of this log */
{
#ifdef NO_F5
    low = min(low, min(at(p), H))
#else
    if
    :: r[g] == p || at(p) > H || ep(p) > e -> unknown = 1
#ifndef NO_M4
    :: ep(p) < e && no_ends -> unknown = 1
#endif
    :: ep(p) < e && at(p) > epoch_end(0) -> unknown = 1
    :: else -> low = min(low, at(p))
    fi
#endif
}

inline look() /* `low` is the floor, unless it is `unknown`; `end` is what may go, 0 for nothing */
{
    unknown = 0; low = NONE; g = 0;
#ifndef NO_F8
    unknown = (unknown || no_rights);
#endif
#ifndef NO_F9
    unknown = (unknown || no_coordinator);
#endif
    complete = !unknown;
    do
    :: g < COUNTED && complete ->
        away = (hidden_from_us(g) || !lst[g]);
#ifdef NO_F3
        if :: !away -> remember(g) :: else fi;
#else
        unknown = (unknown || (!away && pend[g]));
        if :: !away && !pend[g] -> remember(g) :: else fi;
#endif
#ifdef OUTSIDE
        unknown = (unknown || (g == 1 && c[1] == NONE)); /* a file without a position was cut short */
#endif
        if
        :: !away && c[g] != NONE -> count_commit(c[g])
        :: else ->
            n = NONE;
            if
            :: away && (k[g] != NONE || o[g] != NONE) && SAME_TOPIC -> any = (o[g] == NONE); n = (any -> k[g] : o[g])
            :: gone[g] != NONE && SAME_TOPIC -> any = proven[g]; n = gone[g]
            :: else
            fi;
            if :: n != NONE -> count_gone(n, any) :: else fi;
#ifndef NO_F2
            if
            :: !away && !mem[g] && !sib[g] && !(msib[g] && remembers(g))
            :: away && !(msib[g] && remembers(g))
            :: !(!away && mem[g]) && n != NONE
            :: WAIVED
            :: else -> unknown = 1
            fi
#endif
        fi;
        g++
    :: else -> break
    od;
#ifdef YOUNGER
    if :: complete && lst[1] && !saw1 -> saw1 = 1; younger = !exists :: else fi;
#endif
#ifdef NO_F4
    low = (low == NONE -> H : low);
#endif
    unknown = (unknown || low == NONE);
#ifdef WATCHED
    watched = (complete && watched == 0 -> 1 : watched);
#ifndef NO_F10
    unknown = (unknown || watched < 2);
#endif
#endif
#ifdef NO_G2
    end = H; /* a rule that G2 guards: everything is old enough for it */
#else
    end = (unknown -> S : low);
#endif
    end = (end > S -> min(end, H) : 0);
    g = 0; n = 0; any = 0; away = 0; complete = 0
}

inline verdict() /* everything below `target` goes: no group that counts may have yet to read any of it, and some group must count */
{
    do
    :: g < 2 ->
        if
        :: WAIVED && c[g] == NONE && !pend[g]
        :: c[g] != NONE && stale[g] && !told[g] -> any = 1 /* gap: nothing shows that it is of another log */
        :: c[g] == NONE && !mem[g] && !pend[g] && fooled[g] -> any = 1 /* ... and it is gone by now */
        :: c[g] == NONE && !mem[g] && !pend[g] && srd[g] != NONE -> any = 1; bad = (bad || max(srd[g], rd[g]) < target)
        :: c[g] == NONE && !mem[g] && !pend[g] && !sib[g] && srd[g] == NONE
        :: else -> any = 1; bad = (bad || rd[g] < target)
        fi;
#ifdef WATCHED
        bad = (bad || (left[g] != NONE && c[g] == NONE && left[g] < target)); /* it may be back before long */
#endif
        any = (any || fooled[g] || most[g] >= target);
        g++
    :: else -> break
    od;
#ifdef NO_GAP
    assert(any && !bad);
#else
    assert((any && !bad) || unseen); /* gap: what happens between the last read and the delete */
#endif
    g = 0; any = 0; bad = 0
}

inline forget() { if :: phase == 0 -> floor = 0; planned_e = 0; planned_id = 0 :: else fi; low = 0; end = 0; unknown = 0 }
inline since(yes) { unseen = (unseen || (phase == 2 && (yes))) }

inline commit(x, count)
{
    n = start(x) + count;
    since(c[x] == NONE || stale[x] || rd[x] > n);
    c[x] = pos(n, (e == 1 && n > e1 -> 1 : 0)); moved(x); rd[x] = n; n = 0;
    printf("@ commit %d %d\n", x, count)
}

active [2] proctype group()
{
    do
    :: d_step { EXISTS && !pend[_pid] && start(_pid) + 1 <= H -> commit(_pid, 1) }
    :: d_step { EXISTS && !pend[_pid] && start(_pid) + 2 <= H -> commit(_pid, 2) }
    :: d_step { may_fail && c[_pid] != NONE && !pend[_pid] && min(at(c[_pid]), H) > S -> faults++;
        n = min(at(c[_pid]), H) - 1; printf("@ rewind %d %d\n", _pid, n);
        c[_pid] = pos(n, e); moved(_pid); rd[_pid] = n; since(1); n = 0 }
#ifndef OUTSIDE
    :: d_step { may_fail && c[_pid] != NONE && !pend[_pid] && !mem[_pid] -> faults++;
        leaves(_pid); since(1); printf("@ expire %d\n", _pid) }
    :: d_step { may_fail && lst[_pid] -> faults++; leaves(_pid); mem[_pid] = 0; pend[_pid] = 0; sib[_pid] = 0; lst[_pid] = 0;
        since(1); printf("@ delete_group %d\n", _pid) }
    :: d_step { g1_may && !mem[_pid] -> faults++; mem[_pid] = 1; lst[_pid] = 1; since(1);
        rd[_pid] = ((c[_pid] == NONE && !pend[_pid]) -> 0 : rd[_pid]); printf("@ join %d\n", _pid) }
    :: d_step { mem[_pid] -> mem[_pid] = 0; printf("@ leave %d\n", _pid) }
    :: d_step { g1_may && EXISTS && !pend[_pid] && c[_pid] == NONE -> faults++;
        pend[_pid] = 1; lst[_pid] = 1; rd[_pid] = 0; since(1); printf("@ pend %d\n", _pid) }
    :: d_step { pend[_pid] -> pend[_pid] = 0; printf("@ abort %d\n", _pid) }
    :: d_step { g1_may && !sib[_pid] -> faults++; sib[_pid] = 1; lst[_pid] = 1; since(1); printf("@ sibling %d\n", _pid) }
#endif
    od
}

inline cut(x) { stale[x] = (stale[x] || (c[x] != NONE && at(c[x]) > H)); rd[x] = min(rd[x], H); most[x] = min(most[x], H);
    srd[x] = (srd[x] == NONE -> NONE : min(srd[x], H)) }
inline clear(x) { vanish(x); sib[x] = 0; pend[x] = 0 }
inline of_before(x) { told[x] = (looked[x] && c[x] != NONE); stale[x] = (c[x] != NONE && at(c[x]) > 0);
    rd[x] = 0; srd[x] = NONE; most[x] = 0; fooled[x] = 0; looked[x] = 0 }
inline recreate() { id = 1; e = 0; e1 = 0; S = 0; H = 0; behind = 0; fS = 0; fH = 0; elected = 0; since(1);
    of_before(0); of_before(1) }

active proctype cluster()
{
    do
    :: d_step { EXISTS && H < 4 -> H++; printf("@ produce\n") }
    :: d_step { EXISTS && !behind && e == 0 -> behind = 1; fS = S; fH = H; printf("@ behind\n") }
#ifndef OUTSIDE /* a file has no place for leader epochs, and outlives topics */
    :: d_step { may_fail && EXISTS && e == 0 -> faults++; /* unclean if the follower had stopped before */
        if :: behind -> S = fS; H = fH :: else fi;
        e = 1; e1 = H; behind = 0; fS = 0; fH = 0; elected = (phase == 2); cut(0); cut(1); printf("@ elect\n") }
#endif
#if defined(WATCHED)
    :: d_step { ticks < 2 -> ticks++; watched = (watched > 0 -> 2 : 0); left[0] = NONE; left[1] = NONE; printf("@ tick\n") }
#elif defined(YOUNGER)
    :: d_step { !exists -> exists = 1; printf("@ add_partition\n") }
#elif !defined(OUTSIDE)
    :: d_step { may_fail && id == 0 -> faults++; clear(0); clear(1); recreate(); printf("@ recreate 1\n") }
    :: d_step { may_fail && id == 0 && !pend[1] -> faults++; recreate(); printf("@ recreate 0\n") } /* Kafka 3 keeps commits */
#endif
    :: d_step { may_fail && !no_rights -> faults++; no_rights = 1; printf("@ rights 0\n") }
    :: d_step { no_rights -> no_rights = 0; printf("@ rights 1\n") }
    :: d_step { may_fail && !no_coordinator -> faults++; no_coordinator = 1; printf("@ coordinator 0\n") }
    :: d_step { no_coordinator -> no_coordinator = 0; printf("@ coordinator 1\n") }
    :: d_step { may_fail && !no_ends -> faults++; no_ends = 1; printf("@ epoch_ends 0\n") }
    :: d_step { no_ends -> no_ends = 0; printf("@ epoch_ends 1\n") }
    od
}

active proctype kretain()
{
    do
    :: d_step { phase < 2 -> look(); printf("@ plan %d\n", end);
        phase = (end > 0 -> 1 : 0); target = end; floor = (unknown -> NONE : low);
        planned_e = e; planned_id = id; unseen = 0; forget() }
    :: d_step { phase == 1 -> look();
        if /* a recheck may only narrow the plan (docs/plan.md) */
        :: end == 0 || id != planned_id || (floor != NONE && (unknown || low < floor)) -> target = 0
        :: else -> target = ((planned_e != e && (no_ends || epoch_end(0) < target)) -> 0 : min(target, end))
        fi;
        printf("@ recheck %d\n", target);
        phase = (target > 0 -> 2 : 0); elected = 0; unseen = 0; forget() }
    :: d_step { phase == 2 && elected -> phase = 1; elected = 0; unseen = 0; printf("@ refused\n") } /* by the former leader */
    :: d_step { phase == 2 && !elected ->
        if
        :: target > S && target <= H -> printf("@ delete %d\n", target); verdict(); S = target
        :: else -> printf("@ delete 0\n")
        fi;
        phase = 0; target = 0; unseen = 0; forget() }
    od
}
