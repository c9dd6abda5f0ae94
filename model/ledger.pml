/*
 * The ledger's table and the workers around it (DESIGN 2 and 5), for Spin.
 * model/README.md maps every step to the function that it stands for, and says
 * what is left out. scripts/model runs it, and each of its mutants.
 *
 * Ledger, gate and provider each change in one atomic step: that the stores
 * make it so is the business of other tests. Everything else may happen in
 * between: a worker may stop after each of its steps for as long as it likes.
 *
 * Faults come from one purse, FAULTS: a crash, a lease that passes under its
 * worker, an answer that is lost, a request that arrives later or never, a run
 * without a conclusion, a gate that can't be read, a full ledger, a step of
 * the wall clock, a replay. A run of the checker covers every way to spend it.
 *
 * Delivery 0 is permanent (GitHub). The others are bounded (GitLab): signed a
 * first time with replay end 1, and sent again with replay end 2.
 */

#ifndef W
#define W 3      /* workers */
#endif
#ifndef D
#define D 2      /* deliveries */
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef MOVES
#define MOVES 1  /* how often any gate moves */
#endif
#ifndef RENEWS
#define RENEWS 1 /* renewals in one run, which has a wall limit */
#endif

/* Rules to break, one at a time: MUTANT=n in the checker's environment, so that
   one compiled checker serves for all. 0 breaks none. */
c_decl { \#include <stdlib.h> }
byte M;
#define STAGE_WITHOUT_FENCE     1
#define RENEW_AFTER_EXPIRY      2
#define COMPLETE_WITHOUT_COMPARE 3
#define RERUN_AFTER_STAGING     4
#define PUBLISH_WITHOUT_GATE    5
#define PUBLISHER_BESIDE        6
#define FENCE_RESTARTS          7
#define FENCE_KEPT              8
#define TAKEOVER_OF_LIVE        9
#define CLEAN_UNFINISHED       10
#define CLEAN_BY_WALL          11
#define CLOSED_FORGOTTEN       12
#define EVICT_WHEN_FULL        13
#define PUBLISH_UNKNOWN        14
#define NO_SECOND_REFRESH      15
#define STAGE_AGAIN            16
#define DEQUEUE_WHEN_STAGED    17
#define COMPLETE_UNPUBLISHED   18
#define NEW_EVALUATION         19
/* These two are only slow for ever, not wrong: LIVE finds them. */
#define NEVER_RECLAIM          20
#define NEVER_REPUBLISH        21

/* States of a row. */
#define UNCLAIMED 0
#define LEASED    1
#define STAGED    2
#define DONE      3

/* Requests. 0: none. */
#define CLAIM    1
#define RENEW    2
#define STAGE    3
#define COMPLETE 4
#define CREATE   5 /* to the provider */

/* Answers. UNKNOWN: none came. */
#define UNKNOWN   0
#define ACQUIRED  1
#define PUBLISH   2 /* also Staged: a publication and a lease for it */
#define TOLD      3 /* Staged, without a lease */
#define RENEWED   4
#define COMPLETED 5
#define BUSY      6
#define FULL      7
#define EXPIRED   8
#define LOST      9

/* Where a worker is. */
#define IDLE      0
#define BEGUN     1 /* holds an execution lease */
#define RUNS      2
#define RAN       3
#define JUDGED    4 /* knows what to stage */
#define PUBLISHES 5 /* holds a publication */
#define LOOKS     6 /* has read the gate again */
#define WRITES    7
#define ENDS      8 /* published, or never to be */
#define STUCK     9 /* stopped for good without having died */
#define DOWN     10

/* A publication is NONE, or a revision of the gate and one of two results. */
#define NONE 1
#define doc(rev, result) (2 + 2*(rev) + (result))
#define revOf(v)         (((v) - 2) / 2)

/* What the ledger stores. */
byte st[D], ev[D], fe[D], val[D];
byte ends[D];          /* replay end; 0 with a row: never */
bit  live[D];          /* the term has not passed on the boot-time clock */
byte holder[D];        /* who obtained it, plus one; 0: nobody works under it */
bit  dead[D];          /* the holder is proven dead */
byte closed;           /* ClosedThrough */
byte nextE[D];         /* evaluation ids are random: here, new ones */
byte nextF[D];         /* the log position that the next fence is */

/* The world. */
byte gate[D], moves = MOVES;
byte shown[D*3];       /* what the provider shows, by delivery and evaluation */
bit  queued[D];        /* in the inbox */
byte copies[D];        /* how often it was signed */
byte now;              /* true time, as replay ends count it */
byte faults = FAULTS;

/* One request whose sender no longer waits. It arrives at any time, or never. */
byte zk, zd, ze, zf, zv, zw;

/* Workers. */
byte pc[W], wd[W], we[W], wf[W], wv[W], wr[W], wn[W];

/* What only assertions read. None of it tells the protocol anything. */
byte frozen[D*3];      /* what was staged first, by evaluation */
byte covered[D];       /* latest replay end of any row; 255: never ends */
byte maxF[D];          /* highest fence ever given out */
bit  over[D];          /* this fence's term has passed once */
bit  cur[W], zcur;     /* nobody was given a later lease */
bit  holds[W];         /* was told of a lease, and its term has not passed */
bit  fresh[W];         /* the gate was the publication's when the attempt began */
byte ran[W];           /* what the gate was when the run ended */

/* Scratch, always zero between steps. */
byte ans, m, c, x, i, new;

#define at(d, e) ((d)*3 + (e))
#define bounded(d) ((d) > 0)

/* grant hands out a lease on d: to worker g-1, or to nobody that still waits. */
inline grant(d, g) {
	if
	:: M == FENCE_KEPT && maxF[d] > 0
	:: else -> nextF[d]++
	fi;
	fe[d] = nextF[d];
	assert(fe[d] > maxF[d]);                             /* invariant 5 */
	maxF[d] = fe[d];
	for (i : 0 .. W-1) {
		if
		:: pc[i] != IDLE && wd[i] == d -> 
			cur[i] = 0;
			assert(!(holds[i] && i+1 != g))      /* nobody else is within a lease */
		:: else
		fi
	}
	if :: zk && zd == d -> zcur = 0 :: else fi;
	live[d] = 1; over[d] = 0; holder[d] = g; dead[d] = (g == 0)
}

/* forget is a row that is removed. */
inline forget(d) {
	st[d] = 0; ev[d] = 0; fe[d] = 0; val[d] = 0; ends[d] = 0;
	live[d] = 0; dead[d] = 0; holder[d] = 0; over[d] = 0;
	if :: M == FENCE_RESTARTS -> nextF[d] = 0 :: else fi
}

/* doClaim is ledger.claim and claimNew. */
inline doClaim(d, end, g) {
	new = 0;
	if
	:: st[d] == UNCLAIMED ->
		if
		:: bounded(d) && end <= closed && M != CLOSED_FORGOTTEN -> ans = EXPIRED
		:: else ->
			if
			:: bounded(d) && now >= end -> ans = EXPIRED
			:: bounded(d) && now >= end && faults > 0 -> faults--; new = 1 /* wall stepped back */
			:: !(bounded(d) && now >= end) -> new = 1
			:: bounded(d) && now < end && faults > 0 -> faults--; ans = EXPIRED /* wall stepped ahead */
			fi
		fi;
		if
		:: new -> skip
		:: new && faults > 0 -> faults--;
			if
			:: M == EVICT_WHEN_FULL && D > 1 && st[D-1-d] == DONE ->
				forget(D-1-d)
			:: else -> new = 0; ans = FULL
			fi
		:: !new -> skip
		fi;
		if
		:: new ->
			/* Invariant 4: a replay end that a row once had never gives
			   another evaluation, and none begins before it has come. */
			assert(covered[d] != 255 && (!bounded(d) || covered[d] < end));
			assert(covered[d] == 0 || now >= covered[d]);
			nextE[d]++; ev[d] = nextE[d];
			st[d] = LEASED; ends[d] = end;
			covered[d] = (bounded(d) -> end : 255);
			grant(d, g); ans = ACQUIRED
		:: else
		fi
	:: else ->
		if :: end > ends[d] -> ends[d] = end; covered[d] = end :: else fi;
		if
		:: st[d] == LEASED && ((live[d] && !dead[d] && M != TAKEOVER_OF_LIVE) || M == NEVER_RECLAIM) -> ans = BUSY
		:: st[d] == STAGED && ((live[d] && !dead[d] && M != PUBLISHER_BESIDE) || M == NEVER_REPUBLISH) -> ans = BUSY
		:: st[d] == DONE -> ans = COMPLETED
		:: else ->
			if
			:: st[d] == LEASED && M == NEW_EVALUATION -> nextE[d]++; ev[d] = nextE[d]
			:: st[d] == STAGED && M == RERUN_AFTER_STAGING -> st[d] = LEASED; val[d] = 0
			:: else
			fi;
			grant(d, g);
			if
			:: st[d] == LEASED -> ans = ACQUIRED;
				assert(frozen[at(d, ev[d])] == 0);  /* invariant 6 */
				assert(bounded(d) || ev[d] == 1)    /* invariant 4 */
			:: else -> ans = PUBLISH
			fi
		fi
	fi;
	new = 0
}

/* doRenew is ledger.renew. */
inline doRenew(d, e, f, g, current) {
	if
	:: st[d] == LEASED && ev[d] == e && fe[d] == f && (live[d] || M == RENEW_AFTER_EXPIRY) ->
		assert(current);                                     /* invariant 5 */
		assert(!over[d]);                                    /* invariant 18 */
		live[d] = 1; holder[d] = g; dead[d] = (g == 0); ans = RENEWED
	:: else -> ans = LOST
	fi
}

/* doStage is ledger.stage. */
inline doStage(d, e, f, v, g, current) {
	if
	:: st[d] == LEASED && ev[d] == e && (fe[d] == f || M == STAGE_WITHOUT_FENCE) ->
		assert(current);                                     /* invariant 5 */
		assert(frozen[at(d, e)] == 0);                       /* invariant 7 */
		frozen[at(d, e)] = v;
		st[d] = STAGED; val[d] = v;
		live[d] = 1; over[d] = 0; holder[d] = g; dead[d] = (g == 0); ans = PUBLISH
	:: st[d] == STAGED && ev[d] == e && (val[d] == v || M == STAGE_AGAIN) ->
		val[d] = v;
		assert(frozen[at(d, e)] == v);                       /* invariant 7 */
		ans = (fe[d] == f && live[d] -> PUBLISH : TOLD)
	:: else -> ans = LOST
	fi
}

/* doComplete is ledger.complete. It looks at no fence and at no clock. */
inline doComplete(d, e, v) {
	if
	:: st[d] >= STAGED && ((ev[d] == e && val[d] == v) || M == COMPLETE_WITHOUT_COMPARE) ->
		assert(ev[d] == e && frozen[at(d, e)] == v);         /* invariants 5, 7 */
		/* Invariant 9: it is shown, or is provably out of date. */
		assert(v == NONE || shown[at(d, e)] || gate[d] != revOf(v));
		st[d] = DONE; live[d] = 0; over[d] = 0; holder[d] = 0; dead[d] = 0;
		for (i : 0 .. W-1) { /* its leases end with it */
			if :: pc[i] != IDLE && wd[i] == d -> holds[i] = 0 :: else fi
		}
		i = 0; ans = COMPLETED
	:: else -> ans = LOST
	fi
}

/* doCreate is the provider. It knows nothing of fences or clocks. */
inline doCreate(d, e, v) {
	/* Invariant 6: nothing leaves before it is staged. 7: nothing else. */
	assert(frozen[at(d, e)] == v && v != NONE);
#ifdef ONE_WRITE
	assert(!shown[at(d, e)]); /* not promised: see README.md */
#endif
	shown[at(d, e)] = v;
	ans = COMPLETED
}

inline perform(k, d, e, f, v, g, current) {
	if
	:: k == CLAIM -> doClaim(d, f, g)
	:: k == RENEW -> doRenew(d, e, f, g, current)
	:: k == STAGE -> doStage(d, e, f, v, g, current)
	:: k == COMPLETE -> doComplete(d, e, v)
	:: k == CREATE -> doCreate(d, e, v)
	fi
}

/* ask says what becomes of worker w's request: m is 1, it is done and answered;
   2, done, and the answer is lost; 0, it is under way for longer than w waits. */
inline ask(k, w, f) {
	if
	:: m = 1
	:: faults > 0 -> faults--; m = 2
	:: faults > 0 && !zk -> faults--; m = 0;
		zk = k; zd = wd[w]; ze = we[w]; zf = f; zv = wv[w]; zw = w+1; zcur = cur[w]
	fi
}

/* hear leaves in ans what the worker is told. */
inline hear() {
	if :: m != 1 -> ans = UNKNOWN :: else fi;
	m = 0
}

/* rest has a worker know nothing any more. */
inline rest(w) {
	for (i : 0 .. D-1) {
		if :: holder[i] == w+1 -> holder[i] = 0 :: else fi
	}
	pc[w] = IDLE; wd[w] = 0; we[w] = 0; wf[w] = 0; wv[w] = 0; wr[w] = 0; wn[w] = 0;
	cur[w] = 0; holds[w] = 0; fresh[w] = 0; ran[w] = 0;
	i = 0; ans = 0
}

/* crash frees the locks that prove a holder alive. Its requests live on. */
inline crash(w) {
	for (i : 0 .. D-1) {
		if :: holder[i] == w+1 -> dead[i] = 1; holder[i] = 0 :: else fi
	}
	if :: zk && zw == w+1 -> zw = 0 :: else fi;
	rest(w)
}

/* told has a worker work on with the lease of the last answer. */
inline told(w) {
	we[w] = ev[wd[w]]; wf[w] = fe[wd[w]]; cur[w] = 1; holds[w] = 1; ans = 0; i = 0
}

/* publishing begins an attempt to publish what the ledger said is staged. */
inline publishing(w) {
	told(w);
	wv[w] = val[wd[w]]; wr[w] = 0; wn[w] = 0; ran[w] = 0;
	fresh[w] = (wv[w] != NONE && gate[wd[w]] == revOf(wv[w]));
	pc[w] = PUBLISHES
}

/* dequeue ends a delivery in the inbox. */
inline dequeue(w) {
	assert(st[wd[w]] == DONE || ans == EXPIRED);
	queued[wd[w]] = 0
}

/* Idle workers are all the same: the first stands for them, where that is sound. */
#ifdef LIVE
#define next(w) true
#elif W > 3
#define next(w) ((w < 1 || pc[0] != IDLE) && (w < 2 || pc[1] != IDLE) && (w < 3 || pc[2] != IDLE))
#elif W > 2
#define next(w) ((w < 1 || pc[0] != IDLE) && (w < 2 || pc[1] != IDLE))
#else
#define next(w) (w < 1 || pc[0] != IDLE)
#endif

active [W] proctype Worker() {
end:
	do
	:: atomic { pc[_pid] == IDLE && next(_pid) && (queued[0] || (D > 1 && queued[D-1])) ->
		if
		:: queued[0] -> wd[_pid] = 0
		:: D > 1 && queued[D-1] -> wd[_pid] = D-1
		fi;
		if
		:: c = copies[wd[_pid]]
		:: copies[wd[_pid]] == 2 -> c = 1 /* the older copy */
		fi;
		if :: !bounded(wd[_pid]) -> c = 0 :: else fi;
		ask(CLAIM, _pid, c);
		if :: m -> doClaim(wd[_pid], c, _pid+1) :: else fi;
		hear();
		c = 0;
		if
		:: ans == ACQUIRED -> told(_pid); pc[_pid] = BEGUN
		:: ans == PUBLISH -> publishing(_pid)
		:: ans == COMPLETED || ans == EXPIRED -> dequeue(_pid); rest(_pid)
		:: else -> rest(_pid)
		fi }
	:: atomic { pc[_pid] == BEGUN -> /* first refresh */
		wr[_pid] = gate[wd[_pid]]; pc[_pid] = RUNS }
	:: atomic { pc[_pid] == RUNS && wn[_pid] < RENEWS ->
		wn[_pid]++;
		ask(RENEW, _pid, wf[_pid]);
		if :: m -> doRenew(wd[_pid], we[_pid], wf[_pid], _pid+1, cur[_pid]) :: else fi;
		hear();
		if
		:: ans == RENEWED -> told(_pid)
		:: else -> rest(_pid) /* LOST or UNKNOWN: the run is over, nothing is staged */
		fi }
	:: atomic { pc[_pid] == RUNS -> /* the program ends, with one result or the other */
		if :: wv[_pid] = 0 :: wv[_pid] = 1 fi;
		wn[_pid] = 0; ran[_pid] = gate[wd[_pid]]; pc[_pid] = RAN }
	:: atomic { pc[_pid] == RAN -> /* second refresh, and freeze */
		if
		:: wr[_pid] == gate[wd[_pid]] || M == NO_SECOND_REFRESH -> wv[_pid] = doc(wr[_pid], wv[_pid])
		:: else -> wv[_pid] = NONE
		fi;
		/* Invariant 9: seen after the run. */
		assert(wv[_pid] == NONE || revOf(wv[_pid]) >= ran[_pid]);
		wr[_pid] = 0; ran[_pid] = 0; pc[_pid] = JUDGED }
	:: atomic { pc[_pid] == JUDGED ->
		ask(STAGE, _pid, wf[_pid]);
		if :: m -> doStage(wd[_pid], we[_pid], wf[_pid], wv[_pid], _pid+1, cur[_pid]) :: else fi;
		hear();
		if
		:: ans == PUBLISH && M == DEQUEUE_WHEN_STAGED -> dequeue(_pid); publishing(_pid)
		:: ans == UNKNOWN && M == PUBLISH_UNKNOWN && wv[_pid] != NONE -> fresh[_pid] = 1; pc[_pid] = PUBLISHES
		:: ans == PUBLISH && M != DEQUEUE_WHEN_STAGED -> publishing(_pid)
		:: ans != PUBLISH && !(ans == UNKNOWN && M == PUBLISH_UNKNOWN && wv[_pid] != NONE) -> rest(_pid)
		fi }
	:: atomic { pc[_pid] == PUBLISHES -> /* reads the gate again, first */
		if
		:: wv[_pid] == NONE || M == COMPLETE_UNPUBLISHED -> pc[_pid] = ENDS
		:: else -> wr[_pid] = (gate[wd[_pid]] == revOf(wv[_pid]) || M == PUBLISH_WITHOUT_GATE); pc[_pid] = LOOKS
		fi }
	:: atomic { pc[_pid] == LOOKS -> /* is it shown? */
		if
		:: shown[at(wd[_pid], we[_pid])] || !wr[_pid] -> pc[_pid] = ENDS
		:: else -> pc[_pid] = WRITES
		fi;
		wr[_pid] = 0 }
	:: atomic { pc[_pid] == WRITES ->
		assert(fresh[_pid]);                                 /* invariant 9 */
		ask(CREATE, _pid, wf[_pid]);
		if :: m -> doCreate(wd[_pid], we[_pid], wv[_pid]) :: else fi;
		hear();
		if
		:: ans == COMPLETED -> pc[_pid] = ENDS; ans = 0
		:: ans == UNKNOWN && shown[at(wd[_pid], we[_pid])] -> pc[_pid] = ENDS /* looked up, found */
		:: ans == UNKNOWN -> rest(_pid)
		fi }
	:: atomic { pc[_pid] == ENDS ->
		ask(COMPLETE, _pid, wf[_pid]);
		if :: m -> doComplete(wd[_pid], we[_pid], wv[_pid]) :: else fi;
		hear();
		if
		:: ans == COMPLETED -> dequeue(_pid); rest(_pid)
		:: else -> rest(_pid)
		fi }

	/* A run without a conclusion, a gate that can't be read: later, again. */
	:: atomic { (pc[_pid] == BEGUN || pc[_pid] == RUNS || pc[_pid] == RAN || pc[_pid] == PUBLISHES) && faults > 0 ->
		faults--; rest(_pid) }

#ifdef LIVE
	/* One worker keeps running. The others may die or stop at any point. */
	:: atomic { _pid > 0 && pc[_pid] < STUCK && faults > 0 -> faults--; crash(_pid); pc[_pid] = DOWN }
	:: atomic { _pid > 0 && pc[_pid] < STUCK && faults > 0 -> faults--; pc[_pid] = STUCK }
	:: atomic { pc[_pid] == DOWN -> pc[_pid] = IDLE }
	:: pc[_pid] >= STUCK -> break
#else
	/* The process dies, and one like it starts. */
	:: atomic { pc[_pid] != IDLE && faults > 0 -> faults--; crash(_pid) }
#endif
	od
}

#define under(w, d) (pc[w] != IDLE && pc[w] < STUCK && wd[w] == d && we[w] == ev[d] && wf[w] == fe[d])
#if W > 3
#define worked(d) (under(0, d) || under(1, d) || under(2, d) || under(3, d))
#elif W > 2
#define worked(d) (under(0, d) || under(1, d) || under(2, d))
#else
#define worked(d) (under(0, d) || under(1, d))
#endif

/* pass is a term that passes. */
inline pass(d) {
	live[d] = 0; over[d] = 1;
	for (i : 0 .. W-1) {
		if :: pc[i] != IDLE && wd[i] == d && wf[i] == fe[d] && we[i] == ev[d] -> holds[i] = 0 :: else fi
	}
	i = 0
}

#define passes(d) \
	:: atomic { live[d] && st[d] && !worked(d) -> pass(d) } \
	:: atomic { live[d] && st[d] && worked(d) && faults > 0 -> faults--; pass(d) }

#define movesGate(d) \
	:: atomic { moves > 0 -> moves--; gate[d]++ }

/* Clean-up: done, and the replay end has passed on the wall clock, which may
   say anything, and on the running time, which is right. */
#define cleans(d) \
	:: atomic { bounded(d) && (st[d] == DONE || (M == CLEAN_UNFINISHED && st[d])) && \
		(now >= ends[d] || (M == CLEAN_BY_WALL && faults > 0)) -> \
		if :: now < ends[d] -> faults-- :: else fi; \
		assert(st[d] == DONE); /* invariant 10 */ \
		closed = (ends[d] > closed -> ends[d] : closed); \
		forget(d) }

/* The sender signs it anew: a repeat of a known delivery only moves its end. */
#define resends(d) \
	:: atomic { bounded(d) && copies[d] == 1 -> copies[d] = 2; \
		if \
		:: st[d] == UNCLAIMED -> queued[d] = 1 \
		:: else -> if :: ends[d] < 2 -> ends[d] = 2; covered[d] = 2 :: else fi \
		fi } \
	:: atomic { bounded(d) && !queued[d] && st[d] == UNCLAIMED && faults > 0 -> faults--; queued[d] = 1 }

active proctype World() {
	atomic {
		c_code { if (getenv("MUTANT")) now.M = atoi(getenv("MUTANT")); };
		x = 0;
		do
		:: x < D -> queued[x] = 1; copies[x] = 1; x++
		:: else -> break
		od;
		x = 0
	}
end:
	do
	passes(0)
	movesGate(0)
#if D > 1
	passes(1)
	movesGate(1)
	cleans(1)
	resends(1)
	:: now < 2 -> now++
#endif
	:: atomic { zk -> /* what was under way arrives */
		m = zk; x = zd;
		zk = 0;
		perform(m, x, ze, zf, zv, zw, zcur);
		m = 0; x = 0; ans = 0; i = 0;
		zd = 0; ze = 0; zf = 0; zv = 0; zw = 0; zcur = 0 }
	:: atomic { zk -> /* or never does */
		zk = 0; zd = 0; ze = 0; zf = 0; zv = 0; zw = 0; zcur = 0 }
	od
}

#ifdef LIVE
/* If one worker keeps running, every delivery reaches its end, and stays there. */
ltl ends_ { <> (copies[0] && !queued[0] && (D < 2 || !queued[D-1])) }
#endif
