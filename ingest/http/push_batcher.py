"""Accepts the bodies of many connections together: the event loop gathers them, one thread works on a batch of them.

A push takes these steps: 1. on the loop its head is read and its token looked up in the cache; 2. its body arrives;
3. it waits for the next batch; 4. a thread decompresses, parses and admits the bodies of the batch, stamps them and
hands them to the transport, all at once; 5. when the transport says that they are durable, the loop answers. A body
that cannot be parsed or is rejected gets its answer and never touches another one.

A batch begins as soon as the batch before it is durable. A lone sender therefore never waits. While many send (from
``JOIN_FROM_PER_S`` messages a second and ``JOIN_FROM_SENDERS`` senders on), an idle batcher lingers for as long as
further bodies keep coming, at most ``JOIN_LINGER_S``: each commit then pays for many (see ``linger``). A body whose
organisation has few senders does not linger because another one has many. What takes long never joins a batch: large
bodies, also once decompressed, and all of an app that is slow at present (new series, very many hours) have threads of
their own, in which organisations take turns. Nor does another organisation wait for the commit of samples of long ago.
Senders wait for a bounded time, however long the store takes. Enter by ``PushBatcher``, from the event loop only.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from django.db import close_old_connections

from ingest.accept.acceptor import Acceptance, Acceptor
from ingest.accept.activity import record_accepted, record_rejected_body
from ingest.accept.identity import Sender, message_id_of
from ingest.http.body import LargeBody, decoded_body
from ingest.http.endpoints.base import AcceptedMessage, Body, Plan
from ingest.http.exchange import PushRequest
from ingest.http.linger import Linger
from ingest.http.reception import REJECTED_BODY
from ingest.protocols.influx.joined import BodyToParse, parse_many
from spm import limits
from spm.accounts.tokens import Principal
from spm.clock import Clock
from spm.errors import QueueUnavailable, StoreUnavailable
from spm.web.fair_pool import FairPool, PoolClosed, PoolFull, WaitedTooLong, call_in_loop
from spm.wire import Parsed

log = logging.getLogger(__name__)
_LOOK_MIN_S = 0.001  # the resolution of the loop's timers
Finish = Callable[[AcceptedMessage | Exception], None]  # called on the event loop, once


@dataclass(slots=True, eq=False)
class _Push:
    """One body on its way; ``finish`` is called with its accepted message or its error."""

    request: PushRequest
    principal: Principal
    plan: Plan
    sender: Sender
    raw: bytes
    finish: "Finish"
    connection: Hashable
    arrived_s: float = 0.0
    returned: bool = False
    message_id: bytes = b""
    parsed: Parsed | None = None
    acceptance: Acceptance | None = None
    error: Exception | None = None
    batch: "_Batch | None" = None
    is_behind: bool = False  # its batch has ended before it


@dataclass(slots=True, eq=False)
class _Batch:
    """Pushes that one thread works on together; ``open`` counts those that are neither durable nor given up."""

    open: int


class PushBatcher:
    """Gathers the pushes of one event loop. ``acceptor`` returns the process's, which is open by now."""

    def __init__(self, acceptor: Callable[[], Acceptor], clock: Clock) -> None:
        self._acceptor, self._clock = acceptor, clock
        self._loop = asyncio.get_running_loop()
        self._batch_thread = ThreadPoolExecutor(1, thread_name_prefix="push-batch")
        self._large_threads = FairPool(
            "large bodies",
            threads=limits.LARGE_BODY_THREADS,
            threads_max=limits.LARGE_BODY_THREADS,
            per_key_max=limits.LARGE_BODY_THREADS,
            waiting_max=limits.LARGE_BODIES_WAITING_MAX,
            per_key_waiting_max=limits.LARGE_BODIES_WAITING_MAX // 2,
        )
        self._waiting: list[_Push] = []
        self._waiting_bytes = 0
        self._batches = 0  # handed over and not settled
        self._in_flight: dict[_Push, None] = {}  # handed over and not answered, the oldest first
        self._timer: asyncio.TimerHandle | None = None
        self._linger_until = 0.0
        self._linger = Linger(clock)
        self._is_due = False  # those that wait are handed over in the next turn of the loop
        self._behind: Counter[int] = Counter()  # by organisation, pushes whose batch has ended before them
        self._organisations: dict[int, bool] = {}  # of those that wait, and whether any of its senders returns at once
        self._settled: deque[tuple[_Push, Exception | None]] = deque()
        self._begun = self._ended = 0  # batches that the thread was given, and that it has ended
        self._drain_due = False
        self._watch: asyncio.TimerHandle | None = None
        self._closed = False
        self._apart: set[asyncio.Task[None]] = set()  # of large bodies that were taken without a coroutine

    async def accept(
        self,
        request: PushRequest,
        principal: Principal,
        plan: Plan,
        sender: Sender,
        raw: bytes,
        connection: Hashable = None,
    ) -> AcceptedMessage:
        """Accept a body as it was sent; raise its error. ``connection`` stands for its sender's one."""
        if self._closed:
            raise StoreUnavailable("this process is about to end")
        answer: asyncio.Future[AcceptedMessage] = self._loop.create_future()
        self._begin(_Push(request, principal, plan, sender, raw, partial(_resolve, answer), connection))
        return await answer

    def take(
        self,
        request: PushRequest,
        principal: Principal,
        plan: Plan,
        sender: Sender,
        raw: bytes,
        finish: Finish,
        connection: Hashable,
    ) -> bool:
        """Accept a body without a coroutine; return whether it is taken. ``finish`` gets what ``accept`` returns."""
        if self._closed or _is_large(request, raw):
            return False
        self._begin(_Push(request, principal, plan, sender, raw, finish, connection))
        return True

    def _begin(self, push: _Push) -> None:
        push.arrived_s = self._clock.monotonic()
        if _is_large(push.request, push.raw) or self._acceptor().is_slow(push.principal.app_id):
            self._work_apart(push)
        else:
            self._join(push)
        if self._watch is None:
            self._watch = self._loop.call_later(limits.PUBLISH_LOOK_S, self._look)

    def _work_apart(self, push: _Push) -> None:
        """Let a thread of its own work on a body; organisations take turns there."""
        self._in_flight[push] = None
        task = self._loop.create_task(self._run_apart(push))
        self._apart.add(task)
        task.add_done_callback(self._apart.discard)

    async def _run_apart(self, push: _Push) -> None:
        organisation, wait_s = push.principal.organisation_id, limits.PUBLISH_TIMEOUT_S
        try:
            await self._large_threads.run(organisation, lambda: self._accept_apart(push), wait_s=wait_s)
        except (PoolFull, WaitedTooLong, PoolClosed) as error:
            self._finish(push, QueueUnavailable(str(error)))

    def _join(self, push: _Push) -> None:
        organisation = push.principal.organisation_id
        push.returned = self._linger.note_arrival(push.connection, organisation)
        self._waiting.append(push)
        self._waiting_bytes += len(push.raw)
        is_first = organisation not in self._organisations
        if is_first or push.returned:
            self._organisations[organisation] = push.returned
        self._schedule()
        if is_first and self._timer is not None and not self._is_due and not self._lingers():
            self._timer.cancel()
            self._await_more(0)

    def _lingers(self) -> bool:
        """Whether bodies that wait gain by waiting for more, those of each organisation."""
        if self._linger.per_s() < limits.JOIN_FROM_PER_S:
            return False
        return all(returned or self._linger.has_many(each) for each, returned in self._organisations.items())

    def close(self) -> None:
        """Hand over what waits, take nothing more, and end the threads when they are done."""
        self._hand_over()
        self._closed = True
        self._batch_thread.shutdown(wait=False)
        self._large_threads.close()

    def _schedule(self) -> None:
        """Decide when the waiting pushes become a batch."""
        if not self._waiting or self._backlog >= limits.JOIN_BATCHES_MAX:
            return
        full = len(self._waiting) >= limits.JOIN_BODIES or self._waiting_bytes >= limits.JOIN_BYTES
        if full:
            self._hand_over()
        elif self._batches or self._organisations.keys() <= self._behind.keys():
            return
        elif self._all_returned():
            self._hand_over()
        elif self._timer is None:
            self._linger_until = self._clock.monotonic() + limits.JOIN_LINGER_S
            self._await_more(0)

    def _await_more(self, count_before: int) -> None:
        """Hand over, unless many send and more bodies came since the last look."""
        self._timer = None
        count = len(self._waiting)
        remaining_s = self._linger_until - self._clock.monotonic()
        if not count:
            return
        few = not self._lingers()
        if few and count_before == 0:  # those of the same turn of the loop still join
            self._is_due = True
            self._timer = self._loop.call_soon(self._hand_over)  # type: ignore[assignment]
        elif few or count == count_before or remaining_s <= 0 or self._all_returned():
            self._hand_over()
        else:
            quiet_s = max(limits.JOIN_QUIET_GAPS / self._linger.per_s(), _LOOK_MIN_S)
            if 2 * quiet_s > remaining_s:  # a look in between would end the wait hardly sooner
                quiet_s = remaining_s
            self._timer = self._loop.call_later(min(quiet_s, remaining_s), self._await_more, count)

    def _all_returned(self) -> bool:
        """Return whether bodies wait of senders that wait for their answers, and no more of such are to come."""
        return any(self._organisations.values()) and not self._linger.awaits_returns()

    def _hand_over(self) -> None:
        """Give the waiting pushes to the thread as one batch."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pushes, self._waiting, self._waiting_bytes = self._waiting, [], 0
        self._organisations, self._is_due = {}, False
        if not pushes:
            return
        batch = _Batch(len(pushes))
        for push in pushes:
            push.batch = batch
            self._in_flight[push] = None
        self._batches += 1
        self._begun += 1
        self._batch_thread.submit(self._work, pushes)

    def _look(self) -> None:
        """Answer senders that should wait no longer, and hand over what waits behind a commit that stands still."""
        self._watch = None
        try:
            self._answer_late(self._clock.monotonic())
            if self._waiting and self._backlog < limits.JOIN_BATCHES_MAX:
                self._hand_over()
        finally:
            if self._in_flight or self._waiting:
                self._watch = self._loop.call_later(limits.PUBLISH_LOOK_S, self._look)

    def _answer_late(self, now: float) -> None:
        standstill = self._acceptor().standstill if self._in_flight else None
        for push in list(self._in_flight):
            trouble = push.acceptance.trouble if push.acceptance is not None else standstill
            why = trouble() if trouble is not None else None
            if why is None and now - push.arrived_s > limits.PUBLISH_TIMEOUT_S:
                why = f"no confirm within {limits.PUBLISH_TIMEOUT_S} s"
            if why is not None:
                self._finish(push, StoreUnavailable(why))
        late = [push for push in self._waiting if now - push.arrived_s > limits.PUBLISH_STALL_S]
        if late:
            self._waiting = [push for push in self._waiting if now - push.arrived_s <= limits.PUBLISH_STALL_S]
            self._waiting_bytes = sum(len(push.raw) for push in self._waiting)
            by_return = sorted(self._waiting, key=lambda push: push.returned)
            self._organisations = {push.principal.organisation_id: push.returned for push in by_return}
        for push in late:
            push.finish(StoreUnavailable("the bodies before this one are still at work"))

    @property
    def _backlog(self) -> int:
        """How many batches the thread has not ended."""
        return self._begun - self._ended

    # In the threads

    def _accept_apart(self, push: _Push) -> None:
        """Work on one body that takes long."""
        error: Exception | None = None
        try:
            close_old_connections()
            if push.error is None:  # else it was given up meanwhile
                self._read(push)
                self._accept_all([push], apart=True)
        except Exception as fault:
            own = push.acceptance
            if own is None or own.accepted is None:
                error = fault
            else:  # it may be stamped
                log.exception("a push failed unexpectedly")
        finally:
            close_old_connections()
        self._settle_failed(push, error)

    def _work(self, pushes: Sequence[_Push]) -> None:
        """Work on one batch. Only a loop that holds bodies back for its end is woken by it."""
        try:
            self._accept_batch(pushes)
        finally:
            self._ended += 1  # by this thread alone; the loop counts what it gives before it looks at this
            if self._backlog >= limits.JOIN_BATCHES_MAX - 1:
                call_in_loop(self._loop, self._schedule)

    def _accept_batch(self, pushes: Sequence[_Push]) -> None:
        try:
            close_old_connections()  # one that broke meanwhile would stay broken: no request ends in this thread
            self._read_all(pushes)
            self._accept_all(pushes)
        except Exception as error:  # a fault of ours that belongs to no single push
            log.exception("a batch of %d pushes failed unexpectedly", len(pushes))
            for push in pushes:
                own = push.acceptance
                if own is None or own.accepted is None:  # it was not stamped
                    push.error = push.error or (own.error if own is not None else None) or error
        for push in pushes:
            self._settle_failed(push)
        acceptor = self._acceptor()
        behind = {
            app
            for app in {push.principal.app_id for push in pushes}
            if acceptor.sends_past(app) or acceptor.is_slow(app)
        }
        if behind:
            call_in_loop(self._loop, self._fall_behind, [push for push in pushes if push.principal.app_id in behind])

    def _read_all(self, pushes: Sequence[_Push]) -> None:
        """Read the bodies that are not read yet, those of line protocol together."""
        joined: list[tuple[_Push, bytes]] = []
        for push in pushes:
            if push.parsed is not None or push.error is not None:
                continue
            try:
                body = _decoded(push, limits.JOIN_DECODED_BYTES_MAX)
                if push.plan.precision is None:
                    self._note_parsed(push, self._parse(push, body), body)
                else:
                    joined.append((push, body))
            except Exception as error:
                push.error = error
        for (push, body), result in zip(joined, self._parse_together(joined), strict=True):
            try:
                if isinstance(result, Exception):
                    raise result
                self._note_parsed(push, result, body)
            except Exception as error:
                push.error = error

    def _parse_together(self, joined: Sequence[tuple[_Push, bytes]]) -> list[Parsed | Exception]:
        """Parse bodies in line protocol; return what each gives, or its error."""
        acceptor = self._acceptor()
        now_ms = acceptor.clock.now_ms()
        bodies = [
            BodyToParse(body, now_ms, push.plan.precision or "", acceptor.is_over_quota(push.principal.app_id))
            for push, body in joined
        ]
        try:
            return parse_many(bodies)
        except Exception:  # a fault of ours: the bodies that did not cause it are accepted
            log.exception("%d bodies cannot be parsed together", len(bodies))
        results: list[Parsed | Exception] = []
        for push, body in joined:
            try:
                results.append(self._parse(push, body))
            except Exception as error:
                results.append(error)
        return results

    def _read(self, push: _Push) -> None:
        """Decompress and parse one body."""
        body = _decoded(push)
        self._note_parsed(push, self._parse(push, body), body)

    def _parse(self, push: _Push, body: bytes) -> Parsed:
        acceptor = self._acceptor()
        return push.plan.parse(Body(body, acceptor.clock.now_ms(), acceptor.is_over_quota(push.principal.app_id)))

    @staticmethod
    def _note_parsed(push: _Push, parsed: Parsed, body: bytes) -> None:
        given, token_id = push.request.header("x-message-id"), push.principal.token_id
        push.message_id = message_id_of(parsed, given=given, token_id=token_id, path=push.request.path, body=body)
        push.raw, push.parsed = b"", parsed

    def _accept_all(self, pushes: Sequence[_Push], *, apart: bool = False) -> None:
        acceptances = []
        for push in pushes:
            parsed = push.parsed
            if push.error is not None or parsed is None:  # given up by the loop, maybe in this very moment
                continue
            settled = partial(self._settle, push)
            push.acceptance = Acceptance(parsed, push.sender, push.message_id, push.plan.unit, settled, is_apart=apart)
            acceptances.append(push.acceptance)
        self._acceptor().accept_many(acceptances)

    def _settle_failed(self, push: _Push, error: Exception | None = None) -> None:
        acceptance = push.acceptance
        error = error or push.error or (acceptance.error if acceptance is not None else None)
        if error is not None:
            self._settle(push, error)

    def _settle(self, push: _Push, error: Exception | None) -> None:
        """Note what became of a push, in any thread; the loop is woken once for all of them."""
        self._settled.append((push, error))
        if not self._drain_due:
            self._drain_due = True
            call_in_loop(self._loop, self._drain)

    # On the loop again

    def _drain(self) -> None:
        self._drain_due = False
        while self._settled:
            push, error = self._settled.popleft()
            try:
                self._finish(push, error)
            except Exception as fault:  # a fault of ours in its notes or its batch: all others are answered
                log.exception("the end of a push failed unexpectedly")
                push.finish(fault)

    def _finish(self, push: _Push, error: Exception | None) -> None:
        """Answer a push; the first call counts."""
        if push not in self._in_flight:
            return
        if isinstance(error, LargeBody):
            push.error = None
            self._leave_batch(push)
            self._work_apart(push)
            return
        del self._in_flight[push]
        try:
            self._answer(push, error)
        finally:
            self._leave_batch(push)
            if push.is_behind:
                self._end_behind(push.principal.organisation_id)

    def _fall_behind(self, pushes: Sequence[_Push]) -> None:
        """Let a batch end before some of its pushes, which take longer: only their organisations wait for them."""
        for push in pushes:
            if push in self._in_flight and push.batch is not None:
                self._behind[push.principal.organisation_id] += 1
                push.is_behind = True
                self._leave_batch(push)

    def _leave_batch(self, push: _Push) -> None:
        batch, push.batch = push.batch, None
        if batch is not None:
            batch.open -= 1
            if not batch.open:
                self._batches -= 1
                self._schedule()

    def _end_behind(self, organisation: int) -> None:
        self._behind[organisation] -= 1
        if not self._behind[organisation]:
            del self._behind[organisation]
            self._schedule()

    def _answer(self, push: _Push, error: Exception | None) -> None:
        if push.batch is not None or push.is_behind:
            self._linger.note_answer(push.connection, expected=push.returned)
        if error is None:
            accepted = push.acceptance.accepted if push.acceptance is not None else None
            read = push.parsed
            assert accepted is not None, "BUG: a push that is durable without being accepted"
            assert read is not None, "BUG: a push that is durable without being read"
            push.finish(AcceptedMessage(accepted, read, push.message_id))
            stamp_ms = push.acceptance.stamp_ms if push.acceptance is not None else None
            record_accepted(accepted, push.sender, self._clock.now_ms(), stamp_ms)
        else:
            push.error, push.raw, push.parsed = push.error or error, b"", None  # a batch that begins later passes it
            push.finish(error)
            if isinstance(error, REJECTED_BODY):
                record_rejected_body(error, push.sender, self._clock.now_ms())
        push.finish, push.acceptance = _nothing, None  # they refer to the push: it would wait for the garbage collector


def _resolve(answer: "asyncio.Future[AcceptedMessage]", result: AcceptedMessage | Exception) -> None:
    if answer.done():  # its task may have been cancelled
        return
    if isinstance(result, Exception):
        answer.set_exception(result)
    else:
        answer.set_result(result)


def _is_large(request: PushRequest, raw: bytes) -> bool:
    packed = request.header("content-encoding")
    return len(raw) > (limits.JOIN_PACKED_BYTES_MAX if packed else limits.JOIN_BODY_BYTES_MAX)


def _decoded(push: _Push, most: int | None = None) -> bytes:
    return decoded_body(push.request, push.raw, most) if push.request.header("content-encoding") else push.raw


def _nothing(_result: AcceptedMessage | Exception) -> None:
    """Take the place of ``finish`` until something waits for the push."""
