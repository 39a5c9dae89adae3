/* How old a record is (G1, G3, G4, G7, G8, G9, and M1, M2, M4 for facts that let records be trimmed): one partition.
 * A forced age (R4) asks for what is stamped long ago; with -DR2 the newest event time does. A tick is how long G3 keeps a
 * record. -DNO_G1 removes that rule, and so on. Lines that begin with "@" are the trace. */
#ifndef FAULTS
#define FAULTS 3
#endif
#define NONE 15
#define has(mask, x) ((mask >> (x)) & 1)
#define put(mask, x, yes) mask = (mask & ~(1 << (x))) | ((yes) << (x))
#define min(a, b) ((a) < (b) -> (a) : (b))
#define max(a, b) ((a) > (b) -> (a) : (b))
#define may_fail (faults < FAULTS)

/* The log; of each offset a bit: stamped long ago, in seconds, in the future, and (the truth) written within this tick. */
bit id, e, behind;
byte e1, S, H, fS, fH, open = NONE, old, ancient, future, fresh;
bit hold, fast, no_ends; /* the policy freezes the topic; our clock runs ahead; leaders say nothing of epochs */
byte aged, now_h; /* the ledger: H as of a tick ago, and as of this tick */
bit mid, me; /* of which topic, proven under which epoch */
byte phase, target, faults, ticks, n, end;
bit planned_e, planned_id, elected, unseen, held, newer;

inline append(is_old, is_ancient, is_future)
{
    put(old, H, is_old); put(ancient, H, is_ancient); put(future, H, is_future); put(fresh, H, 1);
    H++
}

inline look() /* `end` is what may go, 0 for nothing */
{
#ifndef NO_M1
    if :: mid != id -> aged = 0; now_h = 0; me = e :: else fi;
#endif
    mid = id;
#ifdef NO_M2
    me = e;
#else
    if :: me != e && !no_ends -> aged = min(aged, e1); now_h = min(now_h, e1); me = e :: else fi;
#endif
    n = S; newer = 0;
    do :: n < H -> newer = (newer || has(future, n)); n++ :: else -> break od;
    end = S;
#ifdef R2 /* all is too old beside a record from the future */
    do :: end < H && newer && !has(future, end) -> end++ :: else -> break od;
#else
    do :: end < H && (has(old, end) || has(ancient, end) || fast) -> end++ :: else -> break od;
#endif
#ifndef NO_G1
    end = min(end, open);
#endif
#if !defined(NO_G3) && !defined(R2)
#ifdef NO_M4
    end = min(end, (fast -> max(aged, now_h) : aged));
#else
    end = (me != e -> S : min(end, (fast -> max(aged, now_h) : aged)));
#endif
#endif
    if :: me == e && !fast -> now_h = max(now_h, H) :: else fi;
#ifndef NO_G4
    end = (newer -> S : end);
#endif
#ifndef NO_G7
    end = (hold -> S : end);
#endif
#ifndef NO_G8
    end = (fast && phase == 1 -> S : end); /* a plan does not write, so it cannot compare clocks */
#endif
#ifndef NO_G9
    end = (S < H && has(ancient, S) -> S : end);
#endif
    end = (end > S -> end : 0); n = 0; newer = 0
}

inline verdict()
{
    assert(unseen || target <= open);                    /* no record of an open transaction */
    assert(unseen || !held);                             /* nothing of a topic that was frozen when it was read */
    assert(unseen || !has(ancient, S));                  /* no stamp in seconds at the front (behind it: a gap) */
    n = S;
    do
    :: n < target ->
#ifndef R2
        assert(unseen || !has(fresh, n));                /* nothing written within this tick */
#endif
        assert(unseen || has(old, n) || has(ancient, n)); /* nothing that is not old by its stamp and a right clock */
        n++
    :: else -> break
    od;
    n = 0
}

active proctype cluster()
{
    do
    :: d_step { H < 4 -> append(1, 0, 0); printf("@ produce old\n") }
    :: d_step { H < 4 -> append(0, 0, 0); printf("@ produce young\n") }
    :: d_step { may_fail && H < 4 -> faults++; append(0, 1, 0); printf("@ produce ancient\n") }
#ifdef R2
    :: d_step { may_fail && H < 4 -> faults++; append(0, 0, 1); printf("@ produce future\n") }
#endif
    :: d_step { may_fail && H < 4 && open == NONE -> faults++; open = H; append(1, 0, 0); printf("@ transaction\n") }
    :: d_step { ticks < 2 -> ticks++; fresh = 0; aged = max(aged, now_h); now_h = 0; printf("@ tick\n") }
    :: d_step { !behind && e == 0 && open == NONE -> behind = 1; fS = S; fH = H; printf("@ behind\n") }
    :: d_step { may_fail && e == 0 && open == NONE -> faults++;
        if :: behind -> S = fS; H = fH :: else fi;
        e = 1; e1 = H; behind = 0; fS = 0; fH = 0; elected = (phase == 2); printf("@ elect\n") }
    :: d_step { may_fail && id == 0 -> faults++; id = 1; e = 0; e1 = 0; S = 0; H = 0; behind = 0; fS = 0; fH = 0; open = NONE;
        old = 0; ancient = 0; future = 0; fresh = 0; elected = 0; unseen = (phase == 2); printf("@ recreate 1\n") }
    :: d_step { may_fail && !hold -> faults++; hold = 1; printf("@ hold\n") }
    :: d_step { may_fail && !fast -> faults++; fast = 1; printf("@ clock 1\n") }
    :: d_step { may_fail && !no_ends -> faults++; no_ends = 1; printf("@ epoch_ends 0\n") }
    :: d_step { no_ends -> no_ends = 0; printf("@ epoch_ends 1\n") }
    od
}

active proctype kretain()
{
    do
    :: d_step { phase < 2 -> look(); printf("@ plan %d\n", end);
        phase = (end > 0 -> 1 : 0); target = end; planned_e = (phase -> e : 0); planned_id = (phase -> id : 0); end = 0 }
    :: d_step { phase == 1 -> look(); target = min(target, end);
        if
        :: id != planned_id || (planned_e != e && (no_ends || e1 < target)) -> target = 0
        :: else
        fi;
        printf("@ recheck %d\n", target);
        phase = (target > 0 -> 2 : 0); held = (phase == 2 && hold); elected = 0; unseen = 0; end = 0 }
    :: d_step { phase == 2 && elected -> phase = 1; held = 0; elected = 0; unseen = 0; printf("@ refused\n") }
    :: d_step { phase == 2 && !elected ->
        if
        :: target > S && target <= H -> printf("@ delete %d\n", target); verdict(); S = target
        :: else -> printf("@ delete 0\n")
        fi;
        phase = 0; target = 0; unseen = 0; held = 0; planned_e = 0; planned_id = 0 }
    od
}
