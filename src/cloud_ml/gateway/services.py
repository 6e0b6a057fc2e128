"""A service in the gateway: picks a replica for each call, tries again, lets calls wait a
little, counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection

from cloud_ml.domain.services.routes import Backend, Figures, Route
from cloud_ml.gateway import answers
from cloud_ml.gateway.access import Access
from cloud_ml.gateway.answers import Refusal
from cloud_ml.gateway.call import Bounds, Call
from cloud_ml.gateway.client_limits import ClientLimits
from cloud_ml.gateway.dialer import Dialer
from cloud_ml.gateway.model_list import ModelList
from cloud_ml.gateway.releases import Counts, Sides, Split
from cloud_ml.gateway.replica import Replica
from cloud_ml.net.budget import Budget
from cloud_ml.net.loop_iteration import LoopIteration
from cloud_ml.net.work_share import WorkShare

_AGAIN_S = 0.05
_LOG_S = 10.0
"""How often a service's log line about its replicas' faults may be written."""
logger = logging.getLogger(__name__)


class Service:
    """Calls of one service.

    Args:
        route: What the server said of it.
        access: Who may call.
        models: Lists the services that there are.
        bounds: How much may be under way.
        limits: What replicas may make large.
        iteration: Of the loop.
        loop: The loop.
        bodies: What the bodies of its organisation may take.
    """

    def __init__(
        self,
        route: Route,
        access: Access,
        models: ModelList,
        *,
        bounds: Bounds,
        limits: ClientLimits,
        iteration: LoopIteration,
        loop: asyncio.AbstractEventLoop,
        dialer: Dialer,
        bodies: Budget | None = None,
    ) -> None:
        self.route = route
        self.bodies = bodies if bodies is not None else Budget()
        self.bounds = bounds
        self._access = access
        self.models = models
        self._limits = limits
        self._iteration = iteration
        self._loop = loop
        self._dialer = dialer
        self._share = WorkShare(limits.turn_units, loop)
        self._replicas: dict[str, Replica] = {}
        self._leaving: list[Replica] = []
        self._waiting: deque[Call] = deque()
        self._under_way: set[Call] = set()
        self._again: asyncio.TimerHandle | None = None
        self._turn = 0
        self._lasting = 0
        self._busy_s = 0.0
        self._busy_at = self._quiet_at = loop.time()
        self.requests = self.refused = self.retried = self.broken = self.hung_up = 0
        self._logged_at = -_LOG_S
        self._unlogged = 0
        self._split, self._counts = Split(), Counts()
        self.change(route)

    def change(self, route: Route) -> None:
        """The service is another one from now on: replicas that are not named take nothing new."""
        self.route = route
        self.timeout_s = min(route.timeout_s or self.bounds.timeout_s, self.bounds.timeout_s)
        named = {each.uid: each for each in route.backends}
        for uid in [uid for uid, each in self._replicas.items() if _left(each, named.get(uid))]:
            leaving = self._replicas.pop(uid)
            leaving.leave()
            self._leaving.append(leaving)
        for uid, backend in named.items():
            found = self._replicas.get(uid)
            if found is None:
                self._replicas[uid] = Replica(
                    backend, self._limits, self._iteration, self._loop,
                    dialer=self._dialer, share=self._share, report=self._report,
                    bodies=self.bodies,
                )  # fmt: skip
            else:
                found.backend = backend
        self._sides = Sides(route, self._replicas.values())
        self._counts.keep(route)
        if self._waiting:
            self._try_waiting()

    def close(self) -> None:
        """The service is gone."""
        refusal = self._unwanted_refusal() or answers.STOPPED
        for call in [*self._under_way, *self._waiting]:
            self._out(call)
            call.refuse(refusal)
        for replica in [*self._replicas.values(), *self._leaving]:
            replica.cut()

    # --- calls in ---

    @property
    def replica_window(self) -> int:
        """Bytes that a replica may send on a stream before they are read."""
        return self._limits.window

    def refusal(self, token: str, action: str, *, health: bool = False) -> Refusal | None:
        """Why a call with this token is not taken; ``None`` if it is.

        ``action`` is what it does (see ``access``). ``health``: it asks only whether it could be
        taken.
        """
        if self.route.open or (health and self.bounds.open_health):
            return None
        return self._access.refusal(token, self.route.org, self.route.name, action)

    def take(self, call: Call) -> None:
        """Have the call answered, now or later."""
        now = self._loop.time()
        self.requests += 1
        if (unwanted := self._unwanted_refusal()) is not None:
            self.refused += 1
            call.refuse(unwanted)
            return
        if len(self._under_way) + len(self._waiting) >= self.bounds.in_flight:
            self.refused += 1
            call.refuse(answers.TOO_MANY)
            return
        if call.release_name and (refusal := self._sides.refusal(call.release_name)) is not None:
            self.refused += 1
            call.refuse(refusal)
            return
        self._count(now)
        if self.route.share and not call.release_name:
            call.trial = self._split.turn(self.route.share)
        self._dispatch(call)

    def _unwanted_refusal(self) -> Refusal | None:
        """The answer to any call while nobody is to answer; ``None`` if somebody is."""
        if self.route.wanted:
            return None
        return answers.deleted(self.route.name) if self.route.deleting else answers.STOPPED

    def left_ms(self, call: Call) -> int:
        """Milliseconds to a call's deadline."""
        return int((call.deadline - self._loop.time()) * 1000)

    def goes(self, call: Call) -> bool:
        """Whether a call that got its connection is still to be made."""
        return call in self._under_way

    def done(self, call: Call, *, well: bool = True) -> None:
        """The call has its answer; ``well`` if that is no error."""
        self._count_call(call, well=well)
        self._out(call)

    def failed(self, call: Call, *, refused: bool, final: Refusal | None) -> None:
        """A replica gave no answer."""
        if call not in self._under_way:
            return
        replica = call.replica
        self._out(call)
        if not call.waits():
            return
        if not refused:
            self._count_call(call, well=False)
        call.trial = False  # the candidate had its chance
        if final is not None:
            self._give_up(call, final)
        elif not (refused or call.safe):
            self._give_up(call, answers.LOST)
        elif self._loop.time() >= call.deadline:
            self._give_up(call, answers.TOO_LATE)
        # Where nothing was begun, the time that the call may wait is the bound.
        elif call.attempts >= self.bounds.attempts and not refused:
            self._give_up(call, answers.LOST)
        else:
            self.retried += 1
            if replica is not None:
                call.tried.add(replica.backend.uid)
            self._count(self._loop.time())
            self._dispatch(call)

    def _report(self, replica: Replica, reason: str) -> None:
        """A connection was closed because a replica broke a rule or a bound: count it, and log
        some of them.
        """
        self.hung_up += 1
        now = self._loop.time()
        if now - self._logged_at < _LOG_S:
            self._unlogged += 1
            return
        logger.warning(
            "closed a connection to replica %s of %s: %s (%d more since the last line)",
            replica.backend.uid, self.route.name, reason, self._unlogged,
        )  # fmt: skip
        self._logged_at, self._unlogged = now, 0

    # --- which replica ---

    def _dispatch(self, call: Call) -> None:
        replica = self._pick(call)
        if replica is None:
            self._wait(call)
            return
        call.attempts += 1
        call.sent_at = self._loop.time()
        call.replica = replica
        self._under_way.add(call)
        self._lasting += call.lasting
        replica.in_flight += 1
        replica.requests += 1
        call.send(replica)

    def _pick(self, call: Call) -> Replica | None:
        """The one with the least under way for its weight, of those that answered; where all
        were tried, again.
        """
        if call.release_name:
            able = _able(self._sides.replicas_named(call.release_name))
        elif call.trial and (tried := _able(self._sides.tried)):
            able = tried
        else:  # also where no replica of the candidate can be reached
            able = _able(self._sides.stable)
        fresh = (
            [each for each in able if each.backend.uid not in call.tried] if call.tried else able
        )
        if not fresh:
            if call.tried and able:  # all were tried: after a moment, any of them
                call.tried.clear()
            return None
        if len(fresh) == 1:
            return fresh[0]
        self._turn += 1
        # `min` takes the first of equals: with another beginning each time, idle replicas take
        # turns.
        start = self._turn % len(fresh)
        return min(fresh[start:] + fresh[:start], key=_load)

    def _wait(self, call: Call) -> None:
        """Have a call wait for a replica. All its waits together are bounded, however often a
        replica refuses it.
        """
        now = self._loop.time()
        refusal = self._wait_refusal(call, now)
        if refusal is not None:
            self._give_up(call, refusal)
            return
        call.waiting_since = now
        self._waiting.append(call)
        self._retry_soon()

    def _wait_refusal(self, call: Call, now: float) -> Refusal | None:
        if (unwanted := self._unwanted_refusal()) is not None:
            return unwanted
        if now >= call.deadline:
            return answers.TOO_LATE
        if call.waited_s >= self.bounds.waiting_s:
            return answers.NOBODY
        return answers.TOO_MANY if len(self._waiting) >= self.bounds.waiting else None

    def _retry_soon(self) -> None:
        if self._again is None:
            self._again = self._loop.call_later(_AGAIN_S, self._try_waiting)

    def _try_waiting(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        waiting, self._waiting = self._waiting, deque()
        now = self._loop.time()
        for call in waiting:
            call.waited_s += now - call.waiting_since
            if call.waits():
                self._dispatch(call)
        self._count(self._loop.time())

    def _give_up(self, call: Call, refusal: Refusal) -> None:
        self._count(self._loop.time())
        self.broken += 1
        call.refuse(refusal)

    def _out(self, call: Call) -> None:
        if call in self._under_way:
            self._count(self._loop.time())
            self._under_way.discard(call)
            self._lasting -= call.lasting
            if call.replica is not None:
                call.replica.in_flight -= 1

    def _count_call(self, call: Call, *, well: bool) -> None:
        """Count a call for the release that had it; those that stay open say nothing about how
        long answers take.
        """
        if call.replica is not None and not call.lasting:
            release = call.replica.backend.release
            tried = release == self.route.candidate
            self._counts.add(release, self._loop.time() - call.sent_at, well=well, tried=tried)

    # --- each second ---

    def tick(self, now: float) -> None:
        """Cancel what nobody waits for, end what is too late, let go of replicas that are done."""
        for call in list(self._under_way):
            if not call.waits():
                # Before `cancel`: `failed` then passes over the call and does not try it again.
                self._out(call)
                call.cancel()
            elif now >= call.deadline:
                self._count_call(call, well=False)
                self._out(call)
                call.cancel()
                self._give_up(call, answers.TOO_LATE)
        for replica in self._replicas.values():
            replica.tick()
        over = [each for each in self._leaving if not each.in_flight]
        for replica in over:
            replica.cut()
            self._leaving.remove(replica)

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._under_way and not self._waiting

    def _count(self, now: float) -> None:
        load = len(self._under_way) + len(self._waiting) - self._lasting
        if load:
            self._busy_s += load * (now - self._busy_at)
            self._quiet_at = now
        self._busy_at = now

    def figures(self) -> Figures:
        """What was counted so far."""
        now = self._loop.time()
        self._count(now)
        return Figures(
            requests=self.requests,
            failed=self.broken,
            refused=self.refused,
            retried=self.retried,
            hung_up=self.hung_up,
            in_flight=len(self._under_way),
            waiting=len(self._waiting),
            busy_s=self._busy_s,
            quiet_s=now - self._quiet_at,
            backends={uid: (each.requests, each.in_flight) for uid, each in self._replicas.items()},
            releases=self._counts.figures(),
            sides=self._counts.sides(),
        )


def _able(replicas: Collection[Replica]) -> list[Replica]:
    """Those that answered a moment ago."""
    return [each for each in replicas if each.backend.weight > 0 and not each.shunned]


def _load(replica: Replica) -> float:
    return (replica.in_flight + 1) / replica.backend.weight


def _left(replica: Replica, named: Backend | None) -> bool:
    """Whether a replica is named no more, or is somewhere else now."""
    return named is None or named.address != replica.backend.address
